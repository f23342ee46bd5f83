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
NodeDeclaration Declare(const DecoderShapes& s, const std::string& kept,
                        const std::vector<ParameterSpec>& projections) {
  const int64_t kept_columns = std::ssize(projections) * s.inner;
  const std::string grad_kept = "grad_" + kept;
  const double flops = s.ProductFlops(s.hidden, kept_columns + s.inner);
  std::vector<ParameterSpec> parameters = {NormOver(s, "norm", s.hidden)};
  parameters.insert(parameters.end(), projections.begin(), projections.end());
  parameters.push_back({.name = "down", .shape = {s.hidden, s.inner}});
  const double norm = s.Elements(2 * s.hidden);
  return {
      .place = schedules::Place::kInner,
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {kept},
                   .flops = s.ProductFlops(s.inner, s.hidden)},
                  {.tensor = {kept, {s.tokens, kept_columns}}}},
      .parts = {{.name = "mlp", .parameters = std::move(parameters)}},
      .forward = {.reads = {"x"},
                  .writes = {"hidden", kept},
                  .parameters = true,
                  .scratch = {{"normed", {s.tokens, s.hidden}},
                              {"activated", {s.tokens, s.inner}},
                              ProductsWork(s)},
                  .flops = flops,
                  .row_elements = norm + s.Elements(kept_columns + s.inner)},
      .backward_input = {.reads = {"x", kept},
                         .writes = {"normed", "activated", grad_kept, "grad_norm"},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .scratch = {{"grad_normed", {s.tokens, s.hidden}}, NormWork(s), ProductsWork(s)},
                         .flops = flops,
                         .row_elements = 3 * norm + s.Elements(2 * (kept_columns + s.inner))},
      .intermediates = {{"normed", {s.tokens, s.hidden}},
                        {"activated", {s.tokens, s.inner}},
                        {grad_kept, {s.tokens, kept_columns}},
                        {"grad_norm", {s.hidden}, ElementType::kStatistics}},
      .backward_weight = PassSpec{.reads = {"normed", "activated", grad_kept, "grad_norm"},
                                  .gradient_reads = {"hidden"},
                                  .parameter_gradients = true,
                                  .scratch = {ProductsWork(s)},
                                  .flops = flops},
      .recomputes = true,
  };
}

// Gate and up, and swiglu of them.
NodeDeclaration DeclareMlp(const DecoderShapes& s) {
  return Declare(s, "gate_up",
                 {{.name = "gate", .shape = {s.inner, s.hidden}, .block = "gate_up"},
                  {.name = "up", .shape = {s.inner, s.hidden}, .block = "gate_up"}});
}

// Up alone, and relu(x)² of it.
NodeDeclaration DeclareMlpSquaredRelu(const DecoderShapes& s) {
  return Declare(s, "raised", {{.name = "up", .shape = {s.inner, s.hidden}}});
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
