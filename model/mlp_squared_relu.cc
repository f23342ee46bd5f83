// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// hidden = x + Wdown · relu(Wup · norm(x))². The forward keeps what Wup gives; the backward recomputes the
// norm and the activation.
NodeDeclaration DeclareMlpSquaredRelu(const DecoderShapes& s) {
  const double flops = s.ProductFlops(s.hidden, 2 * s.inner);
  const double norm = s.Elements(2 * s.hidden);
  return {
      .place = schedules::Place::kInner,
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"raised"},
                   .flops = s.ProductFlops(s.inner, s.hidden)},
                  {.tensor = {"raised", {s.tokens, s.inner}}}},
      .parts = {{.name = "mlp",
                 .parameters = {NormOver("norm", s.hidden),
                                {.name = "up", .shape = {s.inner, s.hidden}},
                                {.name = "down", .shape = {s.hidden, s.inner}}}}},
      .forward = {.reads = {"x"},
                  .writes = {"hidden", "raised"},
                  .parameters = true,
                  .scratch = {{"normed", {s.tokens, s.hidden}},
                              {"activated", {s.tokens, s.inner}},
                              ProductsWork(s)},
                  .flops = flops,
                  .row_elements = norm + s.Elements(2 * s.inner)},
      .backward_input = {.reads = {"x", "raised"},
                         .writes = {"normed", "activated", "grad_raised", "grad_norm"},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .scratch = {{"grad_normed", {s.tokens, s.hidden}}, NormWork(s), ProductsWork(s)},
                         .flops = flops,
                         .row_elements = 3 * norm + s.Elements(4 * s.inner)},
      .intermediates = {{"normed", {s.tokens, s.hidden}},
                        {"activated", {s.tokens, s.inner}},
                        {"grad_raised", {s.tokens, s.inner}},
                        {"grad_norm", {s.hidden}, ElementType::kStatistics}},
      .backward_weight = PassSpec{.reads = {"normed", "activated", "grad_raised", "grad_norm"},
                                  .gradient_reads = {"hidden"},
                                  .parameter_gradients = true,
                                  .scratch = {ProductsWork(s)},
                                  .flops = flops},
      .recomputes = true,
  };
}

constexpr ParameterName kSquaredReluNames[] = {
    {"norm", "post_attention_layernorm.weight", nullptr, "norm.weight"},
    {"up", "mlp.up_proj.weight", nullptr, "mixer.up_proj.weight"},
    {"down", "mlp.down_proj.weight", nullptr, "mixer.down_proj.weight"},
};

}  // namespace

constinit const NodeKind kMlpSquaredRelu = {
    .name = "mlp", .declare = DeclareMlpSquaredRelu, .names = kSquaredReluNames};

}  // namespace tandem::model
