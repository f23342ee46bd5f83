// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// hidden = x + multiplier · Wdown · activation(W · norm(x)), W having the projections. The forward keeps W ·
// norm(x), which is called `kept`; the backward recomputes the norm and the activation.
//
// If norms come after: hidden = x + norm(Wdown · activation(W · x)); the backward multiplies by Wdown again.
NodeDeclaration DeclareAnyMlp(const DecoderShapes& s, const std::string& kept,
                              const std::vector<ParameterSpec>& projections) {
  const int64_t kept_columns = std::ssize(projections) * s.inner;
  const std::string grad_kept = "grad_" + kept;
  const double flops = s.ProductFlops(s.hidden, kept_columns + s.inner);
  const double down = s.ProductFlops(s.inner, s.hidden);
  std::vector<ParameterSpec> parameters = projections;
  parameters.push_back({.name = "down", .shape = {s.hidden, s.inner}});
  parameters.insert(s.norms_after ? parameters.end() : parameters.begin(), NormOver(s, "norm", s.hidden));
  const double norm = s.Elements((s.norms_after ? 7 : 2) * s.hidden);
  const double activation = s.Elements(kept_columns + s.inner);
  NodeDeclaration declaration{
      .place = schedules::Place::kInner,
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {kept},
                   .flops = down},
                  {.tensor = {kept, {s.tokens, kept_columns}}}},
      .parts = {{.name = "mlp", .parameters = std::move(parameters)}},
      .forward = {.reads = {"x"},
                  .parameters = true,
                  .scratch = {{"normed", {s.tokens, s.hidden}},
                              {"activated", {s.tokens, s.inner}},
                              ProductsWork(s)},
                  .flops = flops,
                  .row_elements = norm + activation},
      .backward_input = {.reads = {"x", kept},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .scratch = {{"grad_normed", {s.tokens, s.hidden}}, NormWork(s), ProductsWork(s)},
                         .flops = flops,
                         .row_elements = 3 * norm + 2 * activation},
      .intermediates = {{s.norms_after ? "grad_projected" : "normed", {s.tokens, s.hidden}},
                        {"activated", {s.tokens, s.inner}},
                        {grad_kept, {s.tokens, kept_columns}},
                        {"grad_norm", {s.hidden}, ElementType::kStatistics}},
      .backward_weight = PassSpec{.parameter_gradients = true, .scratch = {ProductsWork(s)}, .flops = flops},
      .recomputes = true,
  };
  PassSpec& backward = declaration.backward_input;
  if (s.norms_after) {
    declaration.forward.scratch.push_back({"projected", {s.tokens, s.hidden}});
    backward.scratch.push_back({"projected", {s.tokens, s.hidden}});
    backward.flops += down;
    backward.row_elements = 2 * norm + 3 * activation;
    std::erase(backward.reads, "x");
    declaration.backward_weight->reads = {"x"};
  } else {
    declaration.backward_weight->gradient_reads = {"hidden"};
  }
  return declaration;
}

// Gate and up projections with swiglu.
NodeDeclaration DeclareMlp(const DecoderShapes& s) {
  return DeclareAnyMlp(s, "gate_up",
                       {{.name = "gate", .shape = {s.inner, s.hidden}, .block = "gate_up"},
                        {.name = "up", .shape = {s.inner, s.hidden}, .block = "gate_up"}});
}

// An up projection with relu(x)².
NodeDeclaration DeclareMlpSquaredRelu(const DecoderShapes& s) {
  return DeclareAnyMlp(s, "raised", {{.name = "up", .shape = {s.inner, s.hidden}}});
}

constexpr ParameterName kMlpNames[] = {
    {"norm", "post_attention_layernorm.weight"},
    {"gate", "mlp.gate_proj.weight"},
    {"up", "mlp.up_proj.weight"},
    {"down", "mlp.down_proj.weight"},
};
constexpr ParameterName kSquaredReluNames[] = {
    {"norm", "post_attention_layernorm.weight", nullptr, "norm.weight"},
    {"up", "mlp.up_proj.weight", nullptr, "mixer.up_proj.weight"},
    {"down", "mlp.down_proj.weight", nullptr, "mixer.down_proj.weight"},
};

}  // namespace

constinit const NodeKind kMlp = {.name = "mlp", .declare = DeclareMlp, .names = kMlpNames};
constinit const NodeKind kMlpSquaredRelu = {
    .name = "mlp", .declare = DeclareMlpSquaredRelu, .names = kSquaredReluNames};

}  // namespace tandem::model
