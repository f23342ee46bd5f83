// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// hidden = x + Wdown · swiglu(Wgate_up · norm(x)). The forward keeps gate and up; the backward recomputes the
// norm and the activation.
NodeDeclaration DeclareMlp(const DecoderShapes& s) {
  const double flops = s.ProductFlops(s.hidden, 3 * s.inner);
  const double norm = s.Elements(2 * s.hidden);
  return {
      .place = schedules::Place::kInner,
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"gate_up"},
                   .flops = s.ProductFlops(s.inner, s.hidden)},
                  {.tensor = {"gate_up", {s.tokens, 2 * s.inner}}}},
      .parts = {{.name = "mlp",
                 .parameters = {NormOver("norm", s.hidden),
                                {.name = "gate", .shape = {s.inner, s.hidden}, .block = "gate_up"},
                                {.name = "up", .shape = {s.inner, s.hidden}, .block = "gate_up"},
                                {.name = "down", .shape = {s.hidden, s.inner}}}}},
      .forward = {.reads = {"x"},
                  .writes = {"hidden", "gate_up"},
                  .parameters = true,
                  .scratch = {{"normed", {s.tokens, s.hidden}},
                              {"activated", {s.tokens, s.inner}},
                              ProductsWork(s)},
                  .flops = flops,
                  .row_elements = norm + s.Elements(3 * s.inner)},
      .backward_input = {.reads = {"x", "gate_up"},
                         .writes = {"normed", "activated", "grad_gate_up", "grad_norm"},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .scratch = {{"grad_normed", {s.tokens, s.hidden}}, NormWork(s), ProductsWork(s)},
                         .flops = flops,
                         .row_elements = 3 * norm + s.Elements(6 * s.inner)},
      .intermediates = {{"normed", {s.tokens, s.hidden}},
                        {"activated", {s.tokens, s.inner}},
                        {"grad_gate_up", {s.tokens, 2 * s.inner}},
                        {"grad_norm", {s.hidden}, ElementType::kStatistics}},
      .backward_weight = PassSpec{.reads = {"normed", "activated", "grad_gate_up", "grad_norm"},
                                  .gradient_reads = {"hidden"},
                                  .parameter_gradients = true,
                                  .scratch = {ProductsWork(s)},
                                  .flops = flops},
      .recomputes = true,
  };
}

constexpr ParameterName kMlpNames[] = {
    {"norm", "post_attention_layernorm.weight"},
    {"gate", "mlp.gate_proj.weight"},
    {"up", "mlp.up_proj.weight"},
    {"down", "mlp.down_proj.weight"},
};

}  // namespace

constinit const NodeKind kMlp = {.name = "mlp", .declare = DeclareMlp, .names = kMlpNames};

}  // namespace tandem::model
