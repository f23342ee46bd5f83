// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"
#include "ops/linear_work.h"

namespace tandem::model {

// The head of head.cc whose logits never exist as a whole: they come in blocks of columns of the vocabulary.
// The forward keeps of them the log-sum-exp of each token; the backward computes them again, a product more.
// What a block adds to the gradient of the normed rows is added up in the type of statistics, and rounded
// once. A gradient of the weight is whole with its block.
NodeDeclaration DeclareBlockedHead(const DecoderShapes& s) {
  const double flops = s.ProductFlops(s.hidden, s.vocabulary);
  const TensorSpec normed = {"normed", {s.tokens, s.hidden}};
  const TensorSpec logits = {"logits", {s.tokens, s.logit_columns}};
  const TensorSpec products = {
      "products", {ops::LinearWorkBytes(s.device, s.compute_bytes)}, ElementType::kByte};
  std::vector<TensorSpec> of_backward = {
      normed, logits, {"grad_normed", {s.tokens, s.hidden}}, NormWork(s), products};
  if (s.widens) {
    of_backward.push_back({"grad_sums", {s.tokens, s.hidden}, ElementType::kStatistics});
  }
  return {
      .kind = schedules::NodeKind::kHead,
      .inputs = {HiddenState("x", s), BatchTokens(s)},
      .outputs = {{.tensor = {"loss", {1}, ElementType::kFloat64}, .loss = true},
                  {.tensor = {"lse", {s.tokens}, ElementType::kStatistics}}},
      .parts = HeadParts(s),
      .forward =
          {.reads = {"x", "tokens"},
           .writes = {"loss", "lse"},
           .parameters = true,
           .scratch = {normed, logits, {"target_logits", {s.tokens}, ElementType::kStatistics}, products},
           .flops = flops},
      .backward = {.reads = {"x", "tokens", "lse"},
                   .gradient_writes = {"x"},
                   .parameters = true,
                   .parameter_gradients = true,
                   .scratch = of_backward,
                   .flops = 3 * flops},
  };
}

}  // namespace tandem::model
