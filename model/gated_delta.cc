// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "ops/delta_work.h"

namespace tandem::model {
namespace {

// The parameters that decide how fast a state decays stay in the main type, because exponentials of them are
// multiplied over thousands of tokens.
std::vector<PartSpec> GatedDeltaParts(const DecoderShapes& s) {
  const ops::DeltaShape& delta = s.delta;
  return {{.name = "gated_delta",
           .parameters = {NormOver(s, "norm", s.hidden),
                          {.name = "in_qkvz", .shape = {delta.key_heads * delta.head_columns(), s.hidden}},
                          {.name = "in_ba", .shape = {2 * delta.value_heads, s.hidden}},
                          {.name = "conv",
                           .shape = {delta.channels(), 1, s.delta_conv_width},
                           .init = Init::kUniform,
                           .gradient_is_statistics = true},
                          VectorOf("gate_norm", delta.value_dim, Init::kOnes),
                          {.name = "out_proj", .shape = {s.hidden, delta.values()}}}},
          {.name = "decays",
           .parameters = {VectorOf("dt_bias", delta.value_heads, Init::kOnes),
                          VectorOf("a_log", delta.value_heads, Init::kDecayRates)},
           .main_type = true}};
}

// Counts the recurrence: each number of a state decays, is multiplied by k, gets its part of k ⊗ u, and is
// multiplied by q.
double RecurrenceFlops(const DecoderShapes& s) {
  return 4 * s.ProductFlops(s.delta.key_dim, s.delta.values());
}

// Returns queries, keys and values of all tokens, each as a matrix.
std::vector<TensorSpec> QueriesKeysValues(const DecoderShapes& s, const std::string& prefix) {
  return {{prefix + "q", {s.tokens, s.delta.keys()}},
          {prefix + "k", {s.tokens, s.delta.keys()}},
          {prefix + "v", {s.tokens, s.delta.values()}}};
}

// A gated delta net (Yang, Kautz and Hatamizadeh, arXiv:2412.06464), as Qwen3-Next has it:
//   [q | k | v | z by key head] = Wqkvz · norm(x); [b | a by key head] = Wba · norm(x)
//   q, k, v = silu(conv(q, k, v)); y = recurrence(q, k, v, b, a)
//   hidden = x + Wo · (gate_norm(y) · silu(z)), the norm head by head
// The forward keeps what Wqkvz and Wba give, y, and the states before each chunk. The backward convolves
// again, and computes the gradients of all but the three matrices on the way to that of x; the weight half
// has the rest.
NodeDeclaration DeclareGatedDelta(const DecoderShapes& s) {
  const ops::DeltaShape& delta = s.delta;
  const int64_t columns = delta.key_heads * delta.head_columns();
  const int64_t gates = 2 * delta.value_heads;
  const double in = s.ProductFlops(s.hidden, columns + gates);
  const double out = s.ProductFlops(delta.values(), s.hidden);
  const double recurrence = RecurrenceFlops(s);
  const double rows = s.Elements(2 * s.hidden + 4 * delta.channels() + 3 * delta.values());
  std::vector<TensorSpec> intermediates = {{"normed", {s.tokens, s.hidden}},
                                           {"gated", {s.tokens, delta.values()}},
                                           {"grad_projected", {s.tokens, columns}},
                                           {"grad_ba", {s.tokens, gates}}};
  const std::vector<PartSpec> parts = GatedDeltaParts(s);
  AddStatisticsGradients(parts, intermediates);
  std::vector<TensorSpec> forward_scratch = {{"normed", {s.tokens, s.hidden}},
                                             {"gated", {s.tokens, delta.values()}}};
  std::vector<TensorSpec> backward_scratch = {{"grad_normed", {s.tokens, s.hidden}},
                                              {"grad_gated", {s.tokens, delta.values()}},
                                              {"grad_y", {s.tokens, delta.values()}}};
  for (std::vector<TensorSpec>* scratch : {&forward_scratch, &backward_scratch}) {
    for (const char* prefix : {"read_", "", "grad_"}) {
      if (scratch == &backward_scratch || prefix[0] != 'g') {
        const std::vector<TensorSpec> specs = QueriesKeysValues(s, prefix);
        scratch->insert(scratch->end(), specs.begin(), specs.end());
      }
    }
  }
  forward_scratch.push_back(
      {"delta_work", {ops::GatedDeltaWorkBytes(s.device, delta, s.compute_bytes)}, ElementType::kByte});
  forward_scratch.push_back(ProductsWork(s));
  backward_scratch.push_back({"delta_work",
                              {ops::GatedDeltaBackwardWorkBytes(s.device, delta, s.compute_bytes)},
                              ElementType::kByte});
  backward_scratch.push_back({"conv_work",
                              {ops::CausalConvBackwardWorkBytes(s.device, s.sequences, s.length,
                                                                std::max(delta.keys(), delta.values()),
                                                                s.delta_conv_width, s.compute_bytes)},
                              ElementType::kByte});
  backward_scratch.push_back({"gate_work",
                              {ops::NormGateBackwardWorkBytes(s.device, s.tokens * delta.value_heads,
                                                              delta.value_dim, s.compute_bytes)},
                              ElementType::kByte});
  backward_scratch.push_back(NormWork(s));
  backward_scratch.push_back(ProductsWork(s));
  NodeDeclaration declaration{
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"y"},
                   .flops = out},
                  {.tensor = {"projected", {s.tokens, columns}}, .computed_from = {"ba"}},
                  {.tensor = {"ba", {s.tokens, gates}}, .computed_from = {"projected"}},
                  {.tensor = {"y", {s.tokens, delta.values()}},
                   .computed_from = {"projected", "ba", "states"},
                   .flops = recurrence},
                  {.tensor = {"states", {delta.kept()}, ElementType::kStatistics},
                   .computed_from = {"projected", "ba", "y"}}},
      .parts = parts,
      .forward = {.reads = {"x"},
                  .parameters = true,
                  .scratch = std::move(forward_scratch),
                  .flops = in + out + recurrence,
                  .row_elements = rows},
      .backward_input = {.reads = {"x", "projected", "ba", "y", "states"},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .scratch = std::move(backward_scratch),
                         .flops = in + out + 3 * recurrence,
                         .row_elements = 3 * rows},
      .intermediates = std::move(intermediates),
      .backward_weight = PassSpec{.gradient_reads = {"hidden"},
                                  .parameter_gradients = true,
                                  .scratch = {ProductsWork(s)},
                                  .flops = in + out},
      .recomputes = true,
  };
  ReadDocuments(s, declaration);
  return declaration;
}

constexpr ParameterName kGatedDeltaNames[] = {
    {"norm", "linear_attn_layernorm.weight"},   {"in_qkvz", "linear_attn.in_proj_qkvz.weight"},
    {"in_ba", "linear_attn.in_proj_ba.weight"}, {"conv", "linear_attn.conv1d.weight"},
    {"gate_norm", "linear_attn.norm.weight"},   {"out_proj", "linear_attn.out_proj.weight"},
    {"dt_bias", "linear_attn.dt_bias"},         {"a_log", "linear_attn.A_log"},
};

}  // namespace

constinit const NodeKind kGatedDelta = {
    .name = "gated_delta", .declare = DeclareGatedDelta, .names = kGatedDeltaNames};

}  // namespace tandem::model
