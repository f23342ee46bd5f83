// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "model/node_kinds.h"

namespace tandem::model {
namespace {

std::vector<PartSpec> HeadParts(const DecoderShapes& s) {
  const ParameterSpec weight{.name = "weight", .shape = {s.vocabulary, s.hidden}};
  std::vector<PartSpec> parts = {{.name = "head", .parameters = {NormOver("norm", s.hidden)}}};
  if (s.tied) {
    parts.push_back({.name = "embedding", .unit = "embedding", .parameters = {weight}});
  } else {
    parts[0].parameters.push_back(weight);
  }
  return parts;
}

// DeclareHead where the logits never exist as a whole: they come in blocks of columns of the vocabulary. The
// forward keeps of them the log-sum-exp of each token; the backward computes them again, a product more.
// What a block adds to the gradient of the normed rows is added up in the type of statistics, and rounded
// once. A gradient of the weight is whole with its block.
NodeDeclaration DeclareBlockedHead(const DecoderShapes& s) {
  const double flops = s.ProductFlops(s.hidden, s.vocabulary);
  const TensorSpec normed = {"normed", {s.tokens, s.hidden}};
  const TensorSpec logits = {"logits", {s.tokens, s.logit_columns}};
  std::vector<TensorSpec> of_backward = {
      normed, logits, {"grad_normed", {s.tokens, s.hidden}}, NormWork(s), ProductsWork(s)};
  if (s.widens) {
    of_backward.push_back({"grad_sums", {s.tokens, s.hidden}, ElementType::kStatistics});
  }
  return {
      .kind = schedules::NodeKind::kHead,
      .inputs = {HiddenState("x", s), BatchTokens(s)},
      .outputs = {{.tensor = {"loss", {1}, ElementType::kFloat64}, .loss = true},
                  {.tensor = {"lse", {s.tokens}, ElementType::kStatistics}}},
      .parts = HeadParts(s),
      .forward = {.reads = {"x", "tokens"},
                  .writes = {"loss", "lse"},
                  .parameters = true,
                  .scratch = {normed,
                              logits,
                              {"target_logits", {s.tokens}, ElementType::kStatistics},
                              ProductsWork(s)},
                  .flops = flops},
      .backward = {.reads = {"x", "tokens", "lse"},
                   .gradient_writes = {"x"},
                   .parameters = true,
                   .parameter_gradients = true,
                   .scratch = of_backward,
                   .flops = 3 * flops},
  };
}

}  // namespace

// loss = cross_entropy(weight · norm(x), next tokens). The forward leaves the gradient of the logits where
// the logits were: the derivative of the loss is 1 by definition, so it is known already, and what would be
// kept for the backward is as large. The weight is the embedding's table when it is tied.
NodeDeclaration DeclareHead(const DecoderShapes& s) {
  if (s.logit_columns > 0) {
    return DeclareBlockedHead(s);
  }
  const double flops = s.ProductFlops(s.hidden, s.vocabulary);
  return {
      .kind = schedules::NodeKind::kHead,
      .inputs = {HiddenState("x", s), BatchTokens(s)},
      .outputs = {{.tensor = {"loss", {1}, ElementType::kFloat64}, .loss = true},
                  {.tensor = {"grad_logits", {s.tokens, s.vocabulary}}}},
      .parts = HeadParts(s),
      .forward = {.reads = {"x", "tokens"},
                  .writes = {"loss", "grad_logits"},
                  .parameters = true,
                  .scratch = {{"normed", {s.tokens, s.hidden}},
                              {"lse", {s.tokens}, ElementType::kStatistics},
                              ProductsWork(s)},
                  .flops = flops},
      .backward = {.reads = {"x", "grad_logits"},
                   .gradient_writes = {"x"},
                   .parameters = true,
                   .parameter_gradients = true,
                   .scratch = {{"normed", {s.tokens, s.hidden}},
                               {"grad_normed", {s.tokens, s.hidden}},
                               NormWork(s),
                               ProductsWork(s)},
                   .flops = 2 * flops},
  };
}

}  // namespace tandem::model
