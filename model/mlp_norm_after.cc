// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// hidden = x + norm(Wdown · swiglu(Wgate_up · x)). The forward keeps gate and up; the backward recomputes the
// activation, and multiplies by Wdown again for what the norm reads.
NodeDeclaration DeclareMlpNormAfter(const DecoderShapes& s) {
  const double down = s.ProductFlops(s.inner, s.hidden);
  const double flops = s.ProductFlops(s.hidden, 3 * s.inner);
  const double norm = s.Elements(7 * s.hidden);
  return {
      .place = schedules::Place::kInner,
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"gate_up"},
                   .flops = down},
                  {.tensor = {"gate_up", {s.tokens, 2 * s.inner}}}},
      .parts = {{.name = "mlp",
                 .parameters = {{.name = "gate", .shape = {s.inner, s.hidden}, .block = "gate_up"},
                                {.name = "up", .shape = {s.inner, s.hidden}, .block = "gate_up"},
                                {.name = "down", .shape = {s.hidden, s.inner}},
                                NormOver(s, "norm", s.hidden)}}},
      .forward = {.reads = {"x"},
                  .writes = {"hidden", "gate_up"},
                  .parameters = true,
                  .scratch = {{"activated", {s.tokens, s.inner}},
                              {"projected", {s.tokens, s.hidden}},
                              {"normed", {s.tokens, s.hidden}},
                              ProductsWork(s)},
                  .flops = flops,
                  .row_elements = norm + s.Elements(3 * s.inner)},
      .backward_input = {.reads = {"gate_up"},
                         .writes = {"activated", "grad_gate_up", "grad_projected", "grad_norm"},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .scratch = {{"projected", {s.tokens, s.hidden}},
                                     {"grad_share", {s.tokens, s.hidden}},
                                     NormWork(s),
                                     ProductsWork(s)},
                         .flops = flops + down,
                         .row_elements = 2 * norm + s.Elements(9 * s.inner)},
      .intermediates = {{"activated", {s.tokens, s.inner}},
                        {"grad_gate_up", {s.tokens, 2 * s.inner}},
                        {"grad_projected", {s.tokens, s.hidden}},
                        {"grad_norm", {s.hidden}, ElementType::kStatistics}},
      .backward_weight = PassSpec{.reads = {"x", "activated", "grad_gate_up", "grad_projected", "grad_norm"},
                                  .parameter_gradients = true,
                                  .scratch = {ProductsWork(s)},
                                  .flops = flops},
      .recomputes = true,
  };
}

constexpr ParameterName kMlpNormAfterNames[] = {
    {"norm", "post_feedforward_layernorm.weight"},
    {"gate", "mlp.gate_proj.weight"},
    {"up", "mlp.up_proj.weight"},
    {"down", "mlp.down_proj.weight"},
};

}  // namespace

constinit const NodeKind kMlpNormAfter = {
    .name = "mlp", .declare = DeclareMlpNormAfter, .names = kMlpNormAfterNames};

}  // namespace tandem::model
