// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "model/node_kinds.h"
#include "ops/row_work.h"

namespace tandem::model {
namespace {

std::vector<PartSpec> HeadParts(const DecoderShapes& s) {
  const ParameterSpec weight{.name = "weight", .shape = {s.vocabulary, s.hidden}};
  std::vector<PartSpec> parts = {{.name = "head", .parameters = {NormOver(s, "norm", s.hidden)}}};
  if (s.tied) {
    parts.push_back({.name = "embedding", .unit = "embedding", .parameters = {weight}});
  } else {
    parts[0].parameters.push_back(weight);
  }
  return parts;
}

// DeclareHead where the logits of all tokens would take too much: they come in chunks of tokens. A chunk's
// are gone when the next one's come, so that the forward computes every gradient from them as well, and adds
// up those of the parameters over the chunks. Nothing is left for a backward.
NodeDeclaration DeclareChunkedHead(const DecoderShapes& s) {
  const TensorSpec norm_work = {
      "norm_work",
      {ops::RmsNormBackwardWorkBytes(s.device, s.logit_rows, s.hidden, s.compute_bytes)},
      ElementType::kByte};
  return {
      .inputs = {HiddenState("x", s), BatchTokens(s)},
      .outputs = {{.tensor = {"loss", {1}, ElementType::kFloat64}, .loss = true}},
      .parts = HeadParts(s),
      .forward = {.reads = {"x", "tokens"},
                  .writes = {"loss"},
                  .gradient_writes = {"x"},
                  .parameters = true,
                  .parameter_gradients = true,
                  .scratch = {{"normed", {s.logit_rows, s.hidden}},
                              {"logits", {s.logit_rows, s.vocabulary}},
                              {"grad_normed", {s.logit_rows, s.hidden}},
                              {"lse", {s.tokens}, ElementType::kStatistics},
                              norm_work,
                              ProductsWork(s)},
                  .rounds = (s.tokens + s.logit_rows - 1) / s.logit_rows,
                  .flops = 3 * s.ProductFlops(s.hidden, s.vocabulary),
                  .row_elements = s.Elements(8 * s.hidden + 3 * s.vocabulary)},
  };
}

// loss = cross_entropy(multiplier · weight · norm(x), next tokens). The forward leaves the gradient of the
// logits where the logits were: the derivative of the loss is 1 by definition, so it is known already, and
// what would be kept for the backward is as large. The weight is the embedding's table when it is tied.
NodeDeclaration DeclareHead(const DecoderShapes& s) {
  if (s.logit_rows < s.tokens) {
    return DeclareChunkedHead(s);
  }
  const double flops = s.ProductFlops(s.hidden, s.vocabulary);
  return {
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
                  .flops = flops,
                  .row_elements = s.Elements(2 * s.hidden + 3 * s.vocabulary)},
      .backward_input = {.reads = {"x", "grad_logits"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .parameter_gradients = true,
                         .scratch = {{"normed", {s.tokens, s.hidden}},
                                     {"grad_normed", {s.tokens, s.hidden}},
                                     NormWork(s),
                                     ProductsWork(s)},
                         .flops = 2 * flops,
                         .row_elements = s.Elements(6 * s.hidden)},
  };
}

constexpr ParameterName kHeadNames[] = {
    {"norm", "model.norm.weight", nullptr, "backbone.norm_f.weight"},
    {"weight", "lm_head.weight", nullptr, "lm_head.weight"},
};

}  // namespace

constinit const NodeKind kHead = {.name = "head", .declare = DeclareHead, .names = kHeadNames};

}  // namespace tandem::model
