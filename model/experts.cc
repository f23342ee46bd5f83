// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "ops/linear_work.h"

namespace tandem::model {
namespace {

// Each pass sorts the tokens by their experts anew (ops/permute.h): that costs a copy, and k times as much
// memory between the forward and the backward if it were kept.
std::vector<TensorSpec> SortedScratch(const DecoderShapes& s) {
  return {
      {"row_of", {s.rows}, ElementType::kInt64},
      {"counts", {s.router.experts}, ElementType::kInt64},
      {"rows", {s.rows, s.hidden}},
      {"row_probabilities", {s.rows, 1}, ElementType::kStatistics},
      {"activated", {s.rows, s.expert_inner}},  // backward: first its gradient, then the activation itself
      {"products", {ops::LinearWorkBytes(s.device, s.compute_bytes)}, ElementType::kByte}};
}

}  // namespace

// made = the sum over a token's experts of Wdown · (probability × swiglu(Wgate_up · normed)). The forward
// keeps gate and up, in the order of the experts; the backward recomputes the activation.
NodeDeclaration DeclareExperts(const DecoderShapes& s) {
  const double flops = s.ProductFlops(s.hidden, 3 * s.expert_inner) * static_cast<double>(s.chosen);
  PartSpec part{.name = "experts"};
  for (int64_t expert = 0; expert < s.router.experts; ++expert) {
    for (const char* name : {"gate.", "up."}) {
      part.parameters.push_back(
          {.name = name + std::to_string(expert), .shape = {s.expert_inner, s.hidden}, .block = "gate_up"});
    }
  }
  for (int64_t expert = 0; expert < s.router.experts; ++expert) {
    part.parameters.push_back(
        {.name = "down." + std::to_string(expert), .shape = {s.hidden, s.expert_inner}, .block = "down"});
  }
  std::vector<TensorSpec> forward_scratch = SortedScratch(s);
  forward_scratch.push_back({"made_rows", {s.rows, s.hidden}});
  std::vector<TensorSpec> backward_scratch = SortedScratch(s);
  backward_scratch.push_back({"grad_rows", {s.rows, s.hidden}});  // of what was made of them, then their own
  backward_scratch.push_back({"grad_gate_up", {s.rows, 2 * s.expert_inner}});
  backward_scratch.push_back({"grad_row_probabilities", {s.rows, 1}, ElementType::kStatistics});
  return {
      .kind = schedules::NodeKind::kExperts,
      .inputs = {{.tensor = {"normed", {s.tokens, s.hidden}, ElementType::kHidden}, .from = "normed"},
                 {.tensor = {"chosen", {s.tokens, s.chosen}, ElementType::kInt64}, .from = "chosen"},
                 {.tensor = {"probabilities", {s.tokens, s.chosen}, ElementType::kStatistics},
                  .from = "probabilities"}},
      .outputs = {{.tensor = {"made", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"gate_up"}},
                  {.tensor = {"gate_up", {s.rows, 2 * s.expert_inner}}}},
      .parts = {std::move(part)},
      .forward = {.reads = {"normed", "chosen", "probabilities"},
                  .writes = {"made", "gate_up"},
                  .parameters = true,
                  .scratch = std::move(forward_scratch),
                  .flops = flops},
      .backward = {.reads = {"normed", "chosen", "probabilities", "gate_up"},
                   .gradient_reads = {"made"},
                   .gradient_writes = {"normed", "probabilities"},
                   .parameters = true,
                   .parameter_gradients = true,
                   .scratch = std::move(backward_scratch),
                   .flops = 2 * flops},
      .recomputes = true,
  };
}

}  // namespace tandem::model
