// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "ops/attention_work.h"
#include "ops/row_work.h"

namespace tandem::model {

namespace {

// Columns of the narrow vectors and of what comes out of them.
struct LatentColumns {
  explicit LatentColumns(const DecoderShapes& s)
      : query_rank(s.latent.query_rank),
        kv_rank(s.latent.kv_rank),
        down(s.latent.kv_rank + s.latent.rotary_head_dim),
        key_value(s.heads * (s.latent.content_head_dim + s.latent.value_head_dim)),
        values(s.heads * s.latent.value_head_dim) {}

  bool has_narrow_query() const { return query_rank > 0; }

  int64_t query_rank;
  int64_t kv_rank;
  int64_t down;
  int64_t key_value;
  int64_t values;
};

std::vector<ParameterSpec> LatentParameters(const DecoderShapes& s, const LatentColumns& columns) {
  std::vector<ParameterSpec> parameters = {NormOver(s, "norm", s.hidden)};
  if (columns.has_narrow_query()) {
    parameters.push_back({.name = "query_down", .shape = {columns.query_rank, s.hidden}});
    parameters.push_back(NormOver(s, "query_down_norm", columns.query_rank));
    parameters.push_back({.name = "query_up", .shape = {s.query, columns.query_rank}});
  } else {
    parameters.push_back({.name = "query", .shape = {s.query, s.hidden}});
  }
  parameters.push_back({.name = "key_value_down", .shape = {columns.down, s.hidden}});
  parameters.push_back(NormOver(s, "key_value_down_norm", columns.kv_rank));
  parameters.push_back({.name = "key_value_up", .shape = {columns.key_value, columns.kv_rank}});
  parameters.push_back({.name = "output", .shape = {s.hidden, columns.values}});
  return parameters;
}

// Of the forward's products with parameters.
double LatentProjectionFlops(const DecoderShapes& s, const LatentColumns& columns) {
  const double flops = s.ProductFlops(s.hidden, columns.down) +
                       s.ProductFlops(columns.kv_rank, columns.key_value) +
                       s.ProductFlops(columns.values, s.hidden);
  return flops + (columns.has_narrow_query() ? s.ProductFlops(s.hidden, columns.query_rank) +
                                                   s.ProductFlops(columns.query_rank, s.query)
                                             : s.ProductFlops(s.hidden, s.query));
}

// Of the products within the attention.
double LatentScoreFlops(const DecoderShapes& s) { return s.ProductFlops(s.length, s.query); }

std::vector<OutputSpec> LatentOutputs(const DecoderShapes& s, const LatentColumns& columns) {
  OutputSpec down{.tensor = {"down", {s.tokens, columns.down}}};
  OutputSpec qkv{.tensor = {"qkv", {s.tokens, 3 * s.query}}, .computed_from = {"down"}};
  if (columns.has_narrow_query()) {
    down.computed_from = {"query_down"};  // one pass computes both
    qkv.computed_from.emplace_back("query_down");
  }
  std::vector<OutputSpec> outputs = {
      {.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
       .gradient = true,
       .computed_from = {"context"},
       .flops = s.ProductFlops(columns.values, s.hidden)},
      std::move(down),
      std::move(qkv),
      {.tensor = {"context", {s.tokens, s.query}},
       .computed_from = {"qkv", "lse"},
       .flops = LatentScoreFlops(s)},
      {.tensor = {"lse", {s.sequences, s.heads, s.length}, ElementType::kStatistics},
       .computed_from = {"qkv", "context"}}};
  if (columns.has_narrow_query()) {
    outputs.push_back({.tensor = {"query_down", {s.tokens, columns.query_rank}}, .computed_from = {"down"}});
  }
  return outputs;
}

std::vector<TensorSpec> LatentForwardScratch(const DecoderShapes& s, const LatentColumns& columns) {
  std::vector<TensorSpec> scratch = {
      {"normed", {s.tokens, s.hidden}},
      {"query", {s.tokens, s.query}},
      {"kv_latent", {s.tokens, columns.kv_rank}},
      {"kv_normed", {s.tokens, columns.kv_rank}},
      {"key_value", {s.tokens, columns.key_value}},
      {"values", {s.tokens, columns.values}},  // what the heads' contexts hold beside zeros
      {"work", {ops::AttentionWorkBytes(s.device, s.attention(), s.compute_bytes)}, ElementType::kByte},
      ProductsWork(s)};
  if (columns.has_narrow_query()) {
    scratch.push_back({"query_normed", {s.tokens, columns.query_rank}});
  }
  return scratch;
}

std::vector<TensorSpec> LatentBackwardScratch(const DecoderShapes& s, const LatentColumns& columns) {
  const int64_t latent_norm_work = ops::RmsNormBackwardWorkBytes(
      s.device, s.tokens, std::max(columns.query_rank, columns.kv_rank), s.compute_bytes);
  std::vector<TensorSpec> scratch = {
      {"normed", {s.tokens, s.hidden}},
      {"grad_normed", {s.tokens, s.hidden}},
      {"grad_share", {s.tokens, s.hidden}},
      {"values", {s.tokens, columns.values}},  // first their gradients, then themselves
      {"grad_context", {s.tokens, s.query}},
      {"grad_qkv", {s.tokens, 3 * s.query}},
      {"grad_query", {s.tokens, s.query}},
      {"grad_key_value", {s.tokens, columns.key_value}},
      {"grad_down", {s.tokens, columns.down}},
      {"kv_latent", {s.tokens, columns.kv_rank}},
      {"kv_normed", {s.tokens, columns.kv_rank}},
      {"grad_kv_normed", {s.tokens, columns.kv_rank}},
      {"grad_kv_latent", {s.tokens, columns.kv_rank}},
      {"work",
       {ops::AttentionBackwardWorkBytes(s.device, s.attention(), s.compute_bytes)},
       ElementType::kByte},
      NormWork(s),
      {"latent_norm_work", {latent_norm_work}, ElementType::kByte},
      ProductsWork(s)};
  if (columns.has_narrow_query()) {
    for (const char* name : {"query_normed", "grad_query_normed", "grad_query_down"}) {
      scratch.push_back({name, {s.tokens, columns.query_rank}});
    }
  }
  return scratch;
}

// Multi-head latent attention (ops/latent_heads.h): queries, and keys with values, come from two narrow
// vectors of a token, each normalised.
//   down = Wkv_down · norm(x); key_value = Wkv_up · kv_norm(down without its rotary columns)
//   query = Wq_up · query_norm(query_down), query_down = Wq_down · norm(x); or query = Wq · norm(x)
//   hidden = x + Wo · attention(rope(pack(query, key_value, down)))
// The forward keeps the narrow vectors, q, k, v (packed and rotated), the context and the log-sum-exps; the
// backward recomputes the norms.
NodeDeclaration DeclareLatentAttention(const DecoderShapes& s) {
  const LatentColumns columns(s);
  const double projections = LatentProjectionFlops(s, columns);
  const double scores = LatentScoreFlops(s);
  // Norms of the token and of its narrow vectors; heads that are packed and rotated, and contexts cut.
  const double norms = s.Elements(2 * (s.hidden + columns.kv_rank + columns.query_rank));
  const double heads = s.Elements(2 * 3 * s.query + 2 * columns.values);
  std::vector<OutputSpec> outputs = LatentOutputs(s, columns);
  std::vector<std::string> backward_reads = {"x"};
  for (const OutputSpec& output : outputs) {
    if (!output.gradient) {
      backward_reads.push_back(output.tensor.name);
    }
  }
  NodeDeclaration declaration{
      .inputs = {HiddenState("x", s)},
      .outputs = std::move(outputs),
      .parts = {{.name = "attention", .parameters = LatentParameters(s, columns)}},
      .forward = {.reads = {"x"},
                  .parameters = true,
                  .scratch = LatentForwardScratch(s, columns),
                  .flops = projections + scores,
                  .score_flops = scores,
                  .row_elements = norms + heads},
      .backward_input = {.reads = std::move(backward_reads),
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .parameter_gradients = true,
                         .scratch = LatentBackwardScratch(s, columns),
                         .flops = 2 * projections + 2.5 * scores,
                         .score_flops = 2.5 * scores,
                         .row_elements = 3 * norms + 2 * heads},
      .recomputes = true,
  };
  ReadDocuments(s, declaration);
  return declaration;
}

constexpr ParameterName kLatentAttentionNames[] = {
    {"norm", "input_layernorm.weight"},
    {"query", "self_attn.q_proj.weight"},
    {"output", "self_attn.o_proj.weight"},
    {"query_down", "self_attn.q_a_proj.weight"},
    {"query_down_norm", "self_attn.q_a_layernorm.weight"},
    {"query_up", "self_attn.q_b_proj.weight"},
    {"key_value_down", "self_attn.kv_a_proj_with_mqa.weight"},
    {"key_value_down_norm", "self_attn.kv_a_layernorm.weight"},
    {"key_value_up", "self_attn.kv_b_proj.weight"},
};

}  // namespace

constinit const NodeKind kLatentAttention = {
    .name = "attention", .declare = DeclareLatentAttention, .names = kLatentAttentionNames};

}  // namespace tandem::model
