// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "model/parameter_and_flop_counts.h"
#include "ops/attention_work.h"
#include "ops/row_work.h"

namespace tandem::model {
namespace {

std::vector<ParameterSpec> AttentionParameters(const DecoderShapes& s) {
  std::vector<ParameterSpec> parameters = {
      NormOver(s, "norm", s.hidden),
      {.name = "query", .shape = {s.projected_qkv - 2 * s.key, s.hidden}, .block = "qkv"},
      {.name = "key", .shape = {s.key, s.hidden}, .block = "qkv"},
      {.name = "value", .shape = {s.key, s.hidden}, .block = "qkv"},
      {.name = "output", .shape = {s.hidden, s.query}}};
  if (s.norms_qk) {
    parameters.push_back(NormOver(s, "query_norm", s.norms_heads ? s.head_dim : s.query));
    parameters.push_back(NormOver(s, "key_norm", s.norms_heads ? s.head_dim : s.key));
  }
  if (s.qkv_bias) {
    parameters.push_back(VectorOf("query_bias", s.query, Init::kZeros));
    parameters.push_back(VectorOf("key_bias", s.key, Init::kZeros));
    parameters.push_back(VectorOf("value_bias", s.key, Init::kZeros));
  }
  if (s.output_bias) {
    parameters.push_back(VectorOf("output_bias", s.hidden, Init::kZeros));
  }
  return parameters;
}

// Adds the memory that norms of queries and keys before their rotation need. If one norm covers all heads
// together, "whole" has its contiguous input, and "whole_normed" its output.
void AddQueryKeyNorms(const DecoderShapes& s, std::vector<TensorSpec>& forward_scratch,
                      std::vector<TensorSpec>& input_scratch, std::vector<TensorSpec>& intermediates) {
  if (!s.norms_qk) {
    return;
  }
  forward_scratch.push_back({"rotated", {s.tokens, s.qkv}});
  input_scratch.push_back({"rotated", {s.tokens, s.qkv}});
  intermediates.push_back(
      {"grad_query_norm", {s.norms_heads ? s.head_dim : s.query}, ElementType::kStatistics});
  intermediates.push_back({"grad_key_norm", {s.norms_heads ? s.head_dim : s.key}, ElementType::kStatistics});
  if (s.norms_heads) {
    input_scratch.push_back(
        {"head_norm_work",
         {ops::HeadNormBackwardWorkBytes(s.device, s.tokens, s.head_dim, s.compute_bytes)},
         ElementType::kByte});
    return;
  }
  for (std::vector<TensorSpec>* scratch : {&forward_scratch, &input_scratch}) {
    scratch->push_back({"whole", {s.tokens, s.query}});
    scratch->push_back({"whole_normed", {s.tokens, s.query}});
  }
  input_scratch.push_back({"whole_norm_work",
                           {ops::RmsNormBackwardWorkBytes(s.device, s.tokens, s.query, s.compute_bytes)},
                           ElementType::kByte});
}

// Counts two products of [S, d] x [d, S] for each head, of which causality leaves half, and a window less;
// the backward has five. GPUs also compute what a window hides.
double ScoreFlops(const DecoderShapes& s) {
  const double length = s.windowed && s.device == DeviceKind::kCpu ? AttendedLength(s.length, s.window)
                                                                   : static_cast<double>(s.length);
  return s.ProductFlops(1, s.query) * length;
}

// Adds the memory between an attention and its output projection, if the projection reads gated numbers.
void AddGate(const DecoderShapes& s, std::vector<TensorSpec>& forward_scratch,
             std::vector<TensorSpec>& input_scratch, std::vector<TensorSpec>& intermediates) {
  if (s.gates_attention) {
    forward_scratch.push_back({"gated", {s.tokens, s.query}});
    input_scratch.push_back({"grad_attended", {s.tokens, s.qkv}});
    intermediates.push_back({"gated", {s.tokens, s.query}});
  }
}

// hidden = x + Wo · attention(rope(Wqkv · norm(x))). The forward keeps q, k, v (rotated), the context and
// the log-sum-exps; the backward recomputes the norm. If queries and keys are normalised before they are
// rotated, q, k and v are kept as they were before, and rotated again. Wqkv and Wo may have biases.
//
// With a residual multiplier, the result of Wo is multiplied by it, in the product.
//
// If it is gated: hidden = x + Wo · (attention(...) · sigmoid(gate)), and the rows of Wqkv for a head's gate
// follow those for its query. The gates are kept with q, k and v, and the backward gates the context again.
//
// If norms come after: hidden = x + norm(Wo · attention(rope(Wqkv · x))); the backward multiplies by Wo
// again.
//
// If documents are packed, rows keep their positions in the sequence: the scores of rotated queries and keys
// depend only on their distance, so a document has the scores that it would have from position 0 on, except
// for rounding.
NodeDeclaration DeclareAttention(const DecoderShapes& s) {
  const ops::AttentionShape shape = s.attention();
  const double output = s.ProductFlops(s.query, s.hidden);
  const double projections = s.ProductFlops(s.hidden, s.projected_qkv) + output;
  const double scores = ScoreFlops(s);
  const double norm = s.Elements(s.norms_after ? 7 * s.hidden : 2 * s.hidden);
  const double rotation = s.Elements((s.norms_heads   ? 4
                                      : s.norms_whole ? 8
                                                      : 2) *
                                         s.qkv +
                                     (s.gates_attention ? 3 * s.query : 0) + (s.qkv_bias ? 2 * s.qkv : 0) +
                                     (s.output_bias ? 2 * s.hidden : 0));
  const int64_t forward_work = ops::AttentionWorkBytes(s.device, shape, s.compute_bytes);
  const int64_t backward_work = ops::AttentionBackwardWorkBytes(s.device, shape, s.compute_bytes);
  std::vector<TensorSpec> forward_scratch = {
      {"normed", {s.tokens, s.hidden}}, {"work", {forward_work}, ElementType::kByte}, ProductsWork(s)};
  std::vector<TensorSpec> input_scratch = {{"grad_normed", {s.tokens, s.hidden}},
                                           {"grad_context", {s.tokens, s.query}},
                                           {"work", {backward_work}, ElementType::kByte},
                                           NormWork(s),
                                           ProductsWork(s)};
  std::vector<TensorSpec> weight_scratch = {ProductsWork(s)};
  std::vector<TensorSpec> intermediates = {
      {s.norms_after ? "grad_projected" : "normed", {s.tokens, s.hidden}},
      {"grad_qkv", {s.tokens, s.projected_qkv}},
      {"grad_norm", {s.hidden}, ElementType::kStatistics}};
  AddQueryKeyNorms(s, forward_scratch, input_scratch, intermediates);
  AddGate(s, forward_scratch, input_scratch, intermediates);
  if (s.norms_after) {
    forward_scratch.push_back({"projected", {s.tokens, s.hidden}});
    input_scratch.push_back({"projected", {s.tokens, s.hidden}});
  }
  if (s.windowed) {
    for (std::vector<TensorSpec>* scratch : {&forward_scratch, &input_scratch}) {
      scratch->push_back({"starts", {s.sequences, s.length}, ElementType::kInt64});
    }
  }
  if (s.qkv_bias || s.output_bias) {  // one after the other
    const int64_t columns = std::max(s.qkv_bias ? s.qkv : 0, s.output_bias ? s.hidden : 0);
    weight_scratch.push_back({"bias_work",
                              {ops::QkvBiasBackwardWorkBytes(s.device, s.tokens, columns, s.compute_bytes)},
                              ElementType::kByte});
  }
  std::vector<std::string> weight_reads;
  if (!s.gates_attention) {
    weight_reads.emplace_back("context");
  }
  if (s.norms_after) {
    weight_reads.emplace_back("x");
  }
  NodeDeclaration declaration{
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"context"},
                   .flops = output},
                  {.tensor = {"qkv", {s.tokens, s.projected_qkv}}},
                  {.tensor = {"context", {s.tokens, s.query}},
                   .computed_from = {"qkv", "lse"},
                   .flops = scores},
                  {.tensor = {"lse", {s.sequences, s.heads, s.length}, ElementType::kStatistics},
                   .computed_from = {"qkv", "context"}}},
      .parts = {{.name = "attention", .parameters = AttentionParameters(s)}},
      .forward = {.reads = {"x"},
                  .parameters = true,
                  .scratch = std::move(forward_scratch),
                  .flops = projections + scores,
                  .score_flops = scores,
                  .row_elements = norm + rotation},
      .backward_input = {.reads = {"x", "qkv", "context", "lse"},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .scratch = std::move(input_scratch),
                         .flops = projections + (s.norms_after ? output : 0) + 2.5 * scores,
                         .score_flops = 2.5 * scores,
                         .row_elements = (s.norms_after ? 2 : 3) * norm + rotation},
      .intermediates = std::move(intermediates),
      .backward_weight = PassSpec{.reads = std::move(weight_reads),
                                  .gradient_reads = {"hidden"},
                                  .parameter_gradients = true,
                                  .scratch = std::move(weight_scratch),
                                  .flops = projections},
      .recomputes = true,
  };
  if (s.norms_after) {
    std::erase(declaration.backward_input.reads, "x");
    declaration.backward_weight->gradient_reads.clear();
  }
  ReadDocuments(s, declaration);
  return declaration;
}

constexpr ParameterName kAttentionNames[] = {
    {"norm", "input_layernorm.weight", nullptr, "norm.weight"},
    {"query", "self_attn.q_proj.weight", nullptr, "mixer.q_proj.weight"},
    {"key", "self_attn.k_proj.weight", nullptr, "mixer.k_proj.weight"},
    {"value", "self_attn.v_proj.weight", nullptr, "mixer.v_proj.weight"},
    {"output", "self_attn.o_proj.weight", nullptr, "mixer.o_proj.weight"},
    {"query_norm", "self_attn.q_norm.weight"},
    {"key_norm", "self_attn.k_norm.weight"},
    {"query_bias", "self_attn.q_proj.bias"},
    {"key_bias", "self_attn.k_proj.bias"},
    {"value_bias", "self_attn.v_proj.bias"},
    {"output_bias", "self_attn.o_proj.bias"},
};

}  // namespace

constinit const NodeKind kAttention = {
    .name = "attention", .declare = DeclareAttention, .names = kAttentionNames};

}  // namespace tandem::model
