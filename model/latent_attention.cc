// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "ops/attention_work.h"
#include "ops/row_work.h"

namespace tandem::model {

// Multi-head latent attention (ops/latent_heads.h): queries, and keys with values, come from two narrow
// vectors of a token, each normalised.
//   down = Wkv_down · norm(x); key_value = Wkv_up · kv_norm(down without its rotary columns)
//   query = Wq_up · query_norm(query_down), query_down = Wq_down · norm(x); or query = Wq · norm(x)
//   hidden = x + Wo · attention(rope(pack(query, key_value, down)))
// The forward keeps the narrow vectors, q, k, v (packed and rotated), the context and the log-sum-exps; the
// backward recomputes the norms.
NodeDeclaration DeclareLatentAttention(const DecoderShapes& s) {
  const LatentAttention& latent = s.latent;
  const bool narrow_query = latent.query_rank > 0;
  const int64_t down = latent.kv_rank + latent.rotary_head_dim;
  const int64_t key_value = s.heads * (latent.content_head_dim + latent.value_head_dim);
  const int64_t values = s.heads * latent.value_head_dim;
  const TensorSpec latent_norm_work{
      "latent_norm_work",
      {ops::RmsNormBackwardWorkBytes(s.device, s.tokens, std::max(latent.query_rank, latent.kv_rank),
                                     s.compute_bytes)},
      ElementType::kByte};

  std::vector<ParameterSpec> parameters = {NormOver("norm", s.hidden)};
  std::vector<OutputSpec> outputs = {
      {.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
       .gradient = true,
       .computed_from = {"context"},
       .flops = s.ProductFlops(values, s.hidden)},
      {.tensor = {"down", {s.tokens, down}}},
      {.tensor = {"qkv", {s.tokens, 3 * s.query}}, .computed_from = {"down"}},
      {.tensor = {"context", {s.tokens, s.query}}, .computed_from = {"qkv", "lse"}},
      {.tensor = {"lse", {s.sequences, s.heads, s.length}, ElementType::kStatistics},
       .computed_from = {"qkv", "context"}}};
  std::vector<TensorSpec> forward_scratch = {
      {"normed", {s.tokens, s.hidden}},
      {"query", {s.tokens, s.query}},
      {"kv_latent", {s.tokens, latent.kv_rank}},
      {"kv_normed", {s.tokens, latent.kv_rank}},
      {"key_value", {s.tokens, key_value}},
      {"values", {s.tokens, values}},  // what the heads' contexts hold beside zeros
      {"work", {ops::AttentionWorkBytes(s.device, s.attention(), s.compute_bytes)}, ElementType::kByte},
      ProductsWork(s)};
  std::vector<TensorSpec> backward_scratch = {
      {"normed", {s.tokens, s.hidden}},
      {"grad_normed", {s.tokens, s.hidden}},
      {"grad_share", {s.tokens, s.hidden}},
      {"values", {s.tokens, values}},  // first their gradients, then themselves
      {"grad_context", {s.tokens, s.query}},
      {"grad_qkv", {s.tokens, 3 * s.query}},
      {"grad_query", {s.tokens, s.query}},
      {"grad_key_value", {s.tokens, key_value}},
      {"grad_down", {s.tokens, down}},
      {"kv_latent", {s.tokens, latent.kv_rank}},
      {"kv_normed", {s.tokens, latent.kv_rank}},
      {"grad_kv_normed", {s.tokens, latent.kv_rank}},
      {"grad_kv_latent", {s.tokens, latent.kv_rank}},
      {"work",
       {ops::AttentionBackwardWorkBytes(s.device, s.attention(), s.compute_bytes)},
       ElementType::kByte},
      NormWork(s),
      latent_norm_work,
      ProductsWork(s)};
  double projections = s.ProductFlops(s.hidden, down) + s.ProductFlops(latent.kv_rank, key_value) +
                       s.ProductFlops(values, s.hidden);
  if (narrow_query) {
    const int64_t rank = latent.query_rank;
    parameters.push_back({.name = "query_down", .shape = {rank, s.hidden}});
    parameters.push_back(NormOver("query_down_norm", rank));
    parameters.push_back({.name = "query_up", .shape = {s.query, rank}});
    outputs.push_back({.tensor = {"query_down", {s.tokens, rank}}});
    outputs[2].computed_from.emplace_back("query_down");
    forward_scratch.push_back({"query_normed", {s.tokens, rank}});
    for (const char* name : {"query_normed", "grad_query_normed", "grad_query_down"}) {
      backward_scratch.push_back({name, {s.tokens, rank}});
    }
    projections += s.ProductFlops(s.hidden, rank) + s.ProductFlops(rank, s.query);
  } else {
    parameters.push_back({.name = "query", .shape = {s.query, s.hidden}});
    projections += s.ProductFlops(s.hidden, s.query);
  }
  parameters.push_back({.name = "key_value_down", .shape = {down, s.hidden}});
  parameters.push_back(NormOver("key_value_down_norm", latent.kv_rank));
  parameters.push_back({.name = "key_value_up", .shape = {key_value, latent.kv_rank}});
  parameters.push_back({.name = "output", .shape = {s.hidden, values}});

  std::vector<std::string> writes;
  std::vector<std::string> kept;
  for (const OutputSpec& output : outputs) {
    writes.push_back(output.tensor.name);
    if (!output.gradient) {
      kept.push_back(output.tensor.name);
    }
  }
  kept.insert(kept.begin(), "x");
  const double scores = s.ProductFlops(s.length, s.query);
  outputs[3].flops = scores;
  NodeDeclaration declaration{
      .kind = schedules::NodeKind::kAttention,
      .inputs = {HiddenState("x", s)},
      .outputs = std::move(outputs),
      .parts = {{.name = "attention", .parameters = std::move(parameters)}},
      .forward = {.reads = {"x"},
                  .writes = std::move(writes),
                  .parameters = true,
                  .scratch = std::move(forward_scratch),
                  .flops = projections + scores},
      .backward = {.reads = std::move(kept),
                   .gradient_reads = {"hidden"},
                   .gradient_writes = {"x"},
                   .parameters = true,
                   .parameter_gradients = true,
                   .scratch = std::move(backward_scratch),
                   .flops = 2 * projections + 2.5 * scores},
      .recomputes = true,
  };
  ReadDocuments(s, declaration);
  return declaration;
}

}  // namespace tandem::model
