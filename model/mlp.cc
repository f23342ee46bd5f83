// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"
#include "ops/linear_work.h"

namespace tandem::model {

// hidden = x + Wdown · swiglu(Wgate_up · norm(x)). The forward keeps gate and up; the backward recomputes the
// norm and the activation.
NodeDeclaration DeclareMlp(const DecoderShapes& s) {
  const double flops = s.ProductFlops(s.hidden, 3 * s.inner);
  return {
      .kind = schedules::NodeKind::kMlp,
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"gate_up"},
                   .flops = s.ProductFlops(s.inner, s.hidden)},
                  {.tensor = {"gate_up", {s.tokens, 2 * s.inner}}}},
      .parts = {{.name = "mlp",
                 .parameters = {{.name = "norm",
                                 .shape = {s.hidden},
                                 .init = Init::kOnes,
                                 .gradient_is_statistics = true},
                                {.name = "gate", .shape = {s.inner, s.hidden}, .block = "gate_up"},
                                {.name = "up", .shape = {s.inner, s.hidden}, .block = "gate_up"},
                                {.name = "down", .shape = {s.hidden, s.inner}}}}},
      .forward =
          {.reads = {"x"},
           .writes = {"hidden", "gate_up"},
           .parameters = true,
           .scratch = {{"normed", {s.tokens, s.hidden}},
                       {"activated", {s.tokens, s.inner}},
                       {"products", {ops::LinearWorkBytes(s.device, s.compute_bytes)}, ElementType::kByte}},
           .flops = flops},
      .backward =
          {.reads = {"x", "gate_up"},
           .gradient_reads = {"hidden"},
           .gradient_writes = {"x"},
           .parameters = true,
           .parameter_gradients = true,
           .scratch = {{"normed", {s.tokens, s.hidden}},
                       {"grad_normed", {s.tokens, s.hidden}},
                       {"activated", {s.tokens, s.inner}},  // first its gradient, then the activation itself
                       {"grad_gate_up", {s.tokens, 2 * s.inner}},
                       NormWork(s),
                       {"products", {ops::LinearWorkBytes(s.device, s.compute_bytes)}, ElementType::kByte}},
           .flops = 2 * flops},
      .recomputes = true,
  };
}

}  // namespace tandem::model
