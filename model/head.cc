// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "model/node_kinds.h"
#include "ops/linear_work.h"

namespace tandem::model {

std::vector<PartSpec> HeadParts(const DecoderShapes& s) {
  const ParameterSpec weight{.name = "weight", .shape = {s.vocabulary, s.hidden}};
  std::vector<PartSpec> parts = {
      {.name = "head",
       .parameters = {
           {.name = "norm", .shape = {s.hidden}, .init = Init::kOnes, .gradient_is_statistics = true}}}};
  if (s.tied) {
    parts.push_back({.name = "embedding", .unit = "embedding", .parameters = {weight}});
  } else {
    parts[0].parameters.push_back(weight);
  }
  return parts;
}

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
      .forward =
          {.reads = {"x", "tokens"},
           .writes = {"loss", "grad_logits"},
           .parameters = true,
           .scratch = {{"normed", {s.tokens, s.hidden}},
                       {"lse", {s.tokens}, ElementType::kStatistics},
                       {"products", {ops::LinearWorkBytes(s.device, s.compute_bytes)}, ElementType::kByte}},
           .flops = flops},
      .backward =
          {.reads = {"x", "grad_logits"},
           .gradient_writes = {"x"},
           .parameters = true,
           .parameter_gradients = true,
           .scratch = {{"normed", {s.tokens, s.hidden}},
                       {"grad_normed", {s.tokens, s.hidden}},
                       NormWork(s),
                       {"products", {ops::LinearWorkBytes(s.device, s.compute_bytes)}, ElementType::kByte}},
           .flops = 2 * flops},
  };
}

}  // namespace tandem::model
