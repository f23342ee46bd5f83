// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "ops/attention_work.h"
#include "ops/row_work.h"

namespace tandem::model {
namespace {

// hidden = x + Wo · attention(rope(Wqkv · norm(x))). The forward keeps q, k, v (rotated), the context and the
// log-sum-exps; the backward recomputes the norm. Where heads are normalised before they are rotated, q, k
// and v are kept as they were before, and rotated again.
//
// Where documents are packed, rows keep the positions of their sequence: rotated queries and keys give scores
// that depend on the distance alone, so a document's are what they would be from position 0 on, but for
// rounding.
NodeDeclaration DeclareAttention(const DecoderShapes& s) {
  const double output = s.ProductFlops(s.query, s.hidden);
  const double projections = s.ProductFlops(s.hidden, s.qkv) + output;
  // Two products of [S, d] x [d, S] a head, of which causality leaves half; the backward has five.
  const double scores = s.ProductFlops(s.length, s.query);
  const double norm = s.Elements(2 * s.hidden);
  const double rotation = s.Elements(s.norms_heads ? 4 * s.qkv : 2 * s.qkv);
  const int64_t forward_work = ops::AttentionWorkBytes(s.device, s.attention(), s.compute_bytes);
  const int64_t backward_work = ops::AttentionBackwardWorkBytes(s.device, s.attention(), s.compute_bytes);
  std::vector<ParameterSpec> parameters = {NormOver("norm", s.hidden),
                                           {.name = "query", .shape = {s.query, s.hidden}, .block = "qkv"},
                                           {.name = "key", .shape = {s.key, s.hidden}, .block = "qkv"},
                                           {.name = "value", .shape = {s.key, s.hidden}, .block = "qkv"},
                                           {.name = "output", .shape = {s.hidden, s.query}}};
  std::vector<TensorSpec> forward_scratch = {
      {"normed", {s.tokens, s.hidden}}, {"work", {forward_work}, ElementType::kByte}, ProductsWork(s)};
  std::vector<TensorSpec> input_scratch = {{"grad_normed", {s.tokens, s.hidden}},
                                           {"grad_context", {s.tokens, s.query}},
                                           {"work", {backward_work}, ElementType::kByte},
                                           NormWork(s),
                                           ProductsWork(s)};
  std::vector<TensorSpec> intermediates = {{"normed", {s.tokens, s.hidden}},
                                           {"grad_qkv", {s.tokens, s.qkv}},
                                           {"grad_norm", {s.hidden}, ElementType::kStatistics}};
  if (s.norms_heads) {
    for (const char* name : {"query_norm", "key_norm"}) {
      parameters.push_back(NormOver(name, s.head_dim));
      intermediates.push_back({std::string("grad_") + name, {s.head_dim}, ElementType::kStatistics});
    }
    forward_scratch.push_back({"rotated", {s.tokens, s.qkv}});
    input_scratch.push_back({"rotated", {s.tokens, s.qkv}});
    input_scratch.push_back(
        {"head_norm_work",
         {ops::HeadNormBackwardWorkBytes(s.device, s.tokens, s.head_dim, s.compute_bytes)},
         ElementType::kByte});
  }
  std::vector<std::string> computed;
  for (const TensorSpec& intermediate : intermediates) {
    computed.push_back(intermediate.name);
  }
  std::vector<std::string> weight_reads = computed;
  weight_reads.emplace_back("context");
  NodeDeclaration declaration{
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"context"},
                   .flops = output},
                  {.tensor = {"qkv", {s.tokens, s.qkv}}},
                  {.tensor = {"context", {s.tokens, s.query}},
                   .computed_from = {"qkv", "lse"},
                   .flops = scores},
                  {.tensor = {"lse", {s.sequences, s.heads, s.length}, ElementType::kStatistics},
                   .computed_from = {"qkv", "context"}}},
      .parts = {{.name = "attention", .parameters = std::move(parameters)}},
      .forward = {.reads = {"x"},
                  .writes = {"hidden", "qkv", "context", "lse"},
                  .parameters = true,
                  .scratch = std::move(forward_scratch),
                  .flops = projections + scores,
                  .score_flops = scores,
                  .row_elements = norm + rotation},
      .backward_input = {.reads = {"x", "qkv", "context", "lse"},
                         .writes = computed,
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .scratch = std::move(input_scratch),
                         .flops = projections + 2.5 * scores,
                         .score_flops = 2.5 * scores,
                         .row_elements = 3 * norm + rotation},
      .intermediates = std::move(intermediates),
      .backward_weight = PassSpec{.reads = std::move(weight_reads),
                                  .gradient_reads = {"hidden"},
                                  .parameter_gradients = true,
                                  .scratch = {ProductsWork(s)},
                                  .flops = projections},
      .recomputes = true,
  };
  ReadDocuments(s, declaration);
  return declaration;
}

constexpr ParameterName kAttentionNames[] = {
    {"norm", "input_layernorm.weight"},      {"query", "self_attn.q_proj.weight"},
    {"key", "self_attn.k_proj.weight"},      {"value", "self_attn.v_proj.weight"},
    {"output", "self_attn.o_proj.weight"},   {"query_norm", "self_attn.q_norm.weight"},
    {"key_norm", "self_attn.k_norm.weight"},
};

}  // namespace

constinit const NodeKind kAttention = {
    .name = "attention", .declare = DeclareAttention, .names = kAttentionNames};

}  // namespace tandem::model
