// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "model/node_kinds.h"
#include "ops/linear_work.h"

namespace tandem::model {

// made = Wdown · (probability × swiglu(Wgate_up · row)), each row with the weights of its expert. The forward
// keeps gate and up; the backward recomputes the activation.
NodeDeclaration DeclareExperts(const DecoderShapes& s) {
  const double flops = s.ProductFlops(s.hidden, 3 * s.expert_inner) * static_cast<double>(s.chosen);
  PartSpec part{.name = "experts"};
  for (int64_t expert = 0; expert < s.router.experts; ++expert) {
    const std::string number = "." + std::to_string(expert);
    part.parameters.push_back(
        {.name = "gate" + number, .shape = {s.expert_inner, s.hidden}, .block = "gate_up"});
    part.parameters.push_back(
        {.name = "up" + number, .shape = {s.expert_inner, s.hidden}, .block = "gate_up"});
  }
  for (int64_t expert = 0; expert < s.router.experts; ++expert) {
    part.parameters.push_back(
        {.name = "down." + std::to_string(expert), .shape = {s.hidden, s.expert_inner}, .block = "down"});
  }
  const TensorSpec products{"products", {ops::LinearWorkBytes(s.compute_bytes)}, ElementType::kByte};
  return {
      .kind = schedules::NodeKind::kExperts,
      .inputs = {{.tensor = {"rows", {s.rows, s.hidden}, ElementType::kHidden}, .from = "rows"},
                 {.tensor = {"row_probabilities", {s.rows, 1}, ElementType::kStatistics},
                  .from = "row_probabilities"},
                 {.tensor = {"counts", {s.router.experts}, ElementType::kInt64}, .from = "counts"}},
      .outputs = {{.tensor = {"made", {s.rows, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"gate_up"}},
                  {.tensor = {"gate_up", {s.rows, 2 * s.expert_inner}}}},
      .parts = {std::move(part)},
      .forward = {.reads = {"rows", "row_probabilities", "counts"},
                  .writes = {"made", "gate_up"},
                  .parameters = true,
                  .scratch = {{"activated", {s.rows, s.expert_inner}}, products},
                  .flops = flops},
      .backward = {.reads = {"rows", "row_probabilities", "counts", "gate_up"},
                   .gradient_reads = {"made"},
                   .gradient_writes = {"rows", "row_probabilities"},
                   .parameters = true,
                   .parameter_gradients = true,
                   .scratch = {{"activated",
                                {s.rows, s.expert_inner}},  // first its gradient, then the activation itself
                               {"grad_gate_up", {s.rows, 2 * s.expert_inner}},
                               products},
                   .flops = 2 * flops},
      .recomputes = true,
  };
}

}  // namespace tandem::model
