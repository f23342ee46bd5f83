// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "ops/sparse_work.h"

namespace tandem::model {
namespace {

// Each pass sorts the tokens by their experts again (ops/permute.h): keeping sorted rows between forward and
// backward would save a copy, but take k times as much memory.
std::vector<TensorSpec> SortedScratch(const DecoderShapes& s) {
  return {
      {"row_of", {s.seen * s.slots}, ElementType::kInt64},
      {"counts", {s.local_experts}, ElementType::kInt64},
      {"begins", {s.local_experts + 1}, ElementType::kInt64},
      {"sort_work", {ops::SortWorkBytes(s.device, s.seen * s.slots, s.local_experts)}, ElementType::kByte},
      {"rows", {s.rows, s.hidden}},
      {"products",
       {ops::GroupedWorkBytes(s.device, s.compute_bytes, /*known_rows=*/s.padded_rows > 0)},
       ElementType::kByte}};
}

void Add(std::vector<TensorSpec> more, std::vector<TensorSpec>& scratch) {
  scratch.insert(scratch.end(), more.begin(), more.end());
}

InputSpec Seen(const DecoderShapes& s, const char* name, int64_t columns, ElementType type,
               const char* received) {
  return {.tensor = {name, {s.seen, columns}, type}, .from = s.expert_ranks > 1 ? received : name};
}

// made = the sum over a token's experts of Wdown · (probability × swiglu(Wgate_up · normed)). The forward
// keeps gate and up, in the order of the experts; the backward recomputes the activation.
//
// s.rows rows are computed at a time, and gate and up of the first such rows are kept. If a router sends
// more rows to one rank, further passes compute theirs again in the backward.
//
// If experts are padded to the rows for which they have room, padding is zero in everything that is computed
// from it, also in its share of the weights' gradients.
NodeDeclaration DeclareExperts(const DecoderShapes& s) {
  const auto expected = static_cast<double>(s.expected_rows);
  const auto hidden = static_cast<double>(s.hidden);
  const auto inner = static_cast<double>(s.expert_inner);
  const double flops = 2.0 * expected * hidden * 3 * inner;
  const double gathered = 2 * expected * hidden;  // rows, sorted by their experts
  const double moved =
      gathered + (expected + s.fill * static_cast<double>(s.all_rows())) * hidden;  // and back
  PartSpec part{.name = "experts"};
  for (int64_t expert = s.first_expert; expert < s.first_expert + s.local_experts; ++expert) {
    for (const char* name : {"gate.", "up."}) {
      part.parameters.push_back(
          {.name = name + std::to_string(expert), .shape = {s.expert_inner, s.hidden}, .block = "gate_up"});
    }
  }
  for (int64_t expert = s.first_expert; expert < s.first_expert + s.local_experts; ++expert) {
    part.parameters.push_back(
        {.name = "down." + std::to_string(expert), .shape = {s.hidden, s.expert_inner}, .block = "down"});
  }
  const TensorSpec gate_up{"gate_up", {s.rows, 2 * s.expert_inner}};
  const TensorSpec activated{"activated", {s.rows, s.expert_inner}};
  const TensorSpec row_probabilities{"row_probabilities", {s.rows, 1}, ElementType::kStatistics};
  const TensorSpec grad_row_probabilities{"grad_row_probabilities", {s.rows, 1}, ElementType::kStatistics};
  const TensorSpec grad_gate_up{"grad_gate_up", {s.rows, 2 * s.expert_inner}};
  const TensorSpec grad_rows{"grad_rows", {s.rows, s.hidden}};  // first of `made`, then of the rows
  std::vector<TensorSpec> forward_scratch = SortedScratch(s);
  Add({row_probabilities, activated, {"made_rows", {s.rows, s.hidden}}}, forward_scratch);
  std::vector<TensorSpec> input_scratch = SortedScratch(s);
  Add({row_probabilities, grad_row_probabilities, grad_rows}, input_scratch);
  std::vector<TensorSpec> weight_scratch = SortedScratch(s);
  Add({grad_rows}, weight_scratch);
  std::vector<std::string> weight_reads = {"normed", "chosen"};
  const bool exceeds = s.expert_passes > 1;
  if (exceeds) {
    const std::vector<TensorSpec> of_later_passes = {{"later_gate_up", gate_up.shape},
                                                     {"later_activated", activated.shape},
                                                     {"later_grad_gate_up", grad_gate_up.shape}};
    Add({of_later_passes[0]}, forward_scratch);
    Add(of_later_passes, input_scratch);
    Add(of_later_passes, weight_scratch);
    Add({row_probabilities, grad_row_probabilities}, weight_scratch);
    weight_reads.emplace_back("probabilities");
  }
  return {
      .place = schedules::Place::kInner,
      .inputs = {Seen(s, "normed", s.hidden, ElementType::kHidden, "received"),
                 Seen(s, "chosen", s.slots, ElementType::kInt64, "received_slots"),
                 Seen(s, "probabilities", s.slots, ElementType::kStatistics, "received_probabilities")},
      .outputs = {{.tensor = {"made", {s.seen, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .kind = s.expert_ranks > 1 ? schedules::ValueKind::kAllToAll
                                              : schedules::ValueKind::kActivation,
                   .computed_from = {"gate_up"},
                   .fill = s.FillOf(s.seen)},
                  {.tensor = gate_up}},
      .parts = {std::move(part)},
      .forward = {.reads = {"normed", "chosen", "probabilities"},
                  .parameters = true,
                  .scratch = std::move(forward_scratch),
                  .flops = flops,
                  .row_elements = moved + expected * 3 * inner},
      .backward_input = {.reads = {"normed", "chosen", "probabilities", "gate_up"},
                         .gradient_reads = {"made"},
                         .gradient_writes = {"normed", "probabilities"},
                         .parameters = true,
                         .scratch = std::move(input_scratch),
                         .flops = flops,
                         .row_elements = moved + expected * 6 * inner},
      .intermediates = {activated, grad_gate_up},
      .backward_weight = PassSpec{.reads = std::move(weight_reads),
                                  .gradient_reads = {"made"},
                                  .parameters = exceeds,
                                  .parameter_gradients = true,
                                  .scratch = std::move(weight_scratch),
                                  .flops = flops,
                                  .row_elements = 2 * gathered},
      .recomputes = true,
      .products = " grouped",
      .rows = static_cast<double>(s.expected_rows) / static_cast<double>(s.local_experts),
  };
}

constexpr ParameterName kExpertsNames[] = {
    {"gate", "mlp.experts.*.gate_proj.weight", "block_sparse_moe.experts.*.w1.weight"},
    {"up", "mlp.experts.*.up_proj.weight", "block_sparse_moe.experts.*.w3.weight"},
    {"down", "mlp.experts.*.down_proj.weight", "block_sparse_moe.experts.*.w2.weight"},
};

}  // namespace

constinit const NodeKind kExperts = {
    .name = "experts", .declare = DeclareExperts, .names = kExpertsNames, .experts = true};

}  // namespace tandem::model
