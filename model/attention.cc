// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "ops/attention_work.h"
#include "ops/linear_work.h"

namespace tandem::model {

// hidden = x + Wo · attention(rope(Wqkv · norm(x))). The forward keeps q, k, v (rotated), the context and the
// log-sum-exps; the backward recomputes the norm. Where heads are normalised before they are rotated, q, k
// and v are kept as they were before, and rotated again.
NodeDeclaration DeclareAttention(const DecoderShapes& s) {
  const double output = s.ProductFlops(s.query, s.hidden);
  const double projections = s.ProductFlops(s.hidden, s.qkv) + output;
  // Two products of [S, d] x [d, S] a head, of which causality leaves half; the backward has five.
  const double scores = s.ProductFlops(s.length, s.query);
  const int64_t forward_work = ops::AttentionWorkBytes(s.device, s.attention(), s.compute_bytes);
  const int64_t backward_work = ops::AttentionBackwardWorkBytes(s.device, s.attention(), s.compute_bytes);
  std::vector<ParameterSpec> parameters = {
      {.name = "norm", .shape = {s.hidden}, .init = Init::kOnes, .gradient_is_statistics = true},
      {.name = "query", .shape = {s.query, s.hidden}, .block = "qkv"},
      {.name = "key", .shape = {s.key, s.hidden}, .block = "qkv"},
      {.name = "value", .shape = {s.key, s.hidden}, .block = "qkv"},
      {.name = "output", .shape = {s.hidden, s.query}}};
  std::vector<TensorSpec> forward_scratch = {
      {"normed", {s.tokens, s.hidden}},
      {"work", {forward_work}, ElementType::kByte},
      {"products", {ops::LinearWorkBytes(s.device, s.compute_bytes)}, ElementType::kByte}};
  std::vector<TensorSpec> backward_scratch = {
      {"normed", {s.tokens, s.hidden}},
      {"grad_normed", {s.tokens, s.hidden}},
      {"grad_context", {s.tokens, s.query}},
      {"grad_qkv", {s.tokens, s.qkv}},
      {"work", {backward_work}, ElementType::kByte},
      NormWork(s),
      {"products", {ops::LinearWorkBytes(s.device, s.compute_bytes)}, ElementType::kByte}};
  if (s.norms_heads) {
    for (const char* name : {"query_norm", "key_norm"}) {
      parameters.push_back(
          {.name = name, .shape = {s.head_dim}, .init = Init::kOnes, .gradient_is_statistics = true});
    }
    forward_scratch.push_back({"rotated", {s.tokens, s.qkv}});
    backward_scratch.push_back({"rotated", {s.tokens, s.qkv}});
  }
  return {
      .kind = schedules::NodeKind::kAttention,
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
                  .flops = projections + scores},
      .backward = {.reads = {"x", "qkv", "context", "lse"},
                   .gradient_reads = {"hidden"},
                   .gradient_writes = {"x"},
                   .parameters = true,
                   .parameter_gradients = true,
                   .scratch = std::move(backward_scratch),
                   .flops = 2 * projections + 2.5 * scores},
      .recomputes = true,
  };
}

}  // namespace tandem::model
