// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "model/depths.h"
#include "model/node_kinds.h"
#include "ops/row_work.h"

namespace tandem::model {
namespace {

std::vector<PartSpec> HeadParts(const DecoderShapes& s, bool normalises) {
  const ParameterSpec weight{.name = "weight", .shape = {s.vocabulary, s.hidden}};
  const bool frozen = s.depth > 0 && s.config.depths.detached;
  std::vector<PartSpec> parts;
  if (normalises) {
    parts.push_back({.name = "head", .parameters = {NormOver(s, "norm", s.hidden)}});
  }
  if (s.tied) {
    parts.push_back({.name = "embedding", .unit = "embedding", .parameters = {weight}, .frozen = frozen});
  } else if (normalises) {
    parts[0].parameters.push_back(weight);
  } else {
    parts.push_back({.name = "head",
                     .unit = s.depth > 0 ? "head" : "",  // a depth uses the part that the head declares
                     .parameters = {weight},
                     .frozen = frozen});
  }
  return parts;
}

// loss = cross_entropy(multiplier · weight · norm(x), next tokens). The weight is the embedding's table if
// it is tied. In models with depths (depths.h) x is normalised already, and the head of a depth predicts the
// tokens `depth` + 1 places ahead, from the rows that have such a token.
//
// The forward leaves the gradient of the logits in place of the logits: the derivative of the loss is known
// already, and keeping the logits for the backward would take as much memory. If the logits of all tokens
// would take too much memory, they are computed in chunks of tokens. The logits of a chunk are overwritten
// by the next one's, so the forward also computes all gradients from them, and adds up those of the
// parameters over the chunks. Then the backward has nothing to do.
NodeDeclaration DeclareAnyHead(const DecoderShapes& s, bool normalises) {
  const PredictedRows predicted = s.predicted();
  const auto rows = static_cast<double>(predicted.rows());
  const auto hidden = static_cast<double>(s.hidden);
  const auto vocabulary = static_cast<double>(s.vocabulary);
  const double flops = 2 * rows * hidden * vocabulary;
  const double backward_elements = rows * (normalises ? 6 : 2) * hidden;
  const int64_t chunk = std::min(s.logit_rows, predicted.length);
  std::vector<TensorSpec> forward_scratch = {{"lse", {predicted.rows()}, ElementType::kStatistics},
                                             ProductsWork(s)};
  std::vector<TensorSpec> gradient_scratch;
  const TensorSpec normed{"normed", {chunk, s.hidden}};
  if (normalises) {
    forward_scratch.push_back(normed);
    gradient_scratch = {{"grad_normed", {chunk, s.hidden}},
                        {"norm_work",
                         {ops::RmsNormBackwardWorkBytes(s.device, chunk, s.hidden, s.compute_bytes)},
                         ElementType::kByte}};
  }
  NodeDeclaration declaration{
      .inputs = {normalises ? HiddenState("x", s) : HiddenOfDepth("x", s.depth, s), BatchTokens(s)},
      .outputs = {{.tensor = {"loss", {1}, ElementType::kFloat64}, .loss = true}},
      .parts = HeadParts(s, normalises),
      .forward = {.reads = {"x", "tokens"},
                  .parameters = true,
                  .scratch = std::move(forward_scratch),
                  .rounds = predicted.Chunks(s.logit_rows),
                  .flops = flops,
                  .row_elements = rows * ((normalises ? 2 : 0) * hidden + 3 * vocabulary)},
      .rows = rows,
  };
  PassSpec& forward = declaration.forward;
  if (s.logit_rows < s.tokens) {
    forward.gradient_writes = {"x"};
    forward.parameter_gradients = true;
    forward.scratch.push_back({"logits", {chunk, s.vocabulary}});
    forward.scratch.insert(forward.scratch.end(), gradient_scratch.begin(), gradient_scratch.end());
    forward.flops += 2 * flops;
    forward.row_elements += backward_elements;
    return declaration;
  }
  gradient_scratch.push_back(ProductsWork(s));
  if (normalises) {
    gradient_scratch.push_back(normed);
  }
  declaration.outputs.push_back({.tensor = {"grad_logits", {predicted.rows(), s.vocabulary}}});
  declaration.backward_input = {.reads = {"x", "grad_logits"},
                                .gradient_writes = {"x"},
                                .parameters = true,
                                .parameter_gradients = true,
                                .scratch = std::move(gradient_scratch),
                                .rounds = forward.rounds,
                                .flops = 2 * flops,
                                .row_elements = backward_elements};
  return declaration;
}

NodeDeclaration DeclareHead(const DecoderShapes& s) { return DeclareAnyHead(s, /*normalises=*/true); }
NodeDeclaration DeclareHeadOfNormed(const DecoderShapes& s) {
  return DeclareAnyHead(s, /*normalises=*/false);
}

constexpr ParameterName kHeadNames[] = {
    {"norm", "model.norm.weight", nullptr, "backbone.norm_f.weight"},
    {"weight", "lm_head.weight", nullptr, "lm_head.weight"},
};

}  // namespace

constinit const NodeKind kHead = {.name = "head", .declare = DeclareHead, .names = kHeadNames};
constinit const NodeKind kHeadOfNormed = {
    .name = "head", .declare = DeclareHeadOfNormed, .names = kHeadNames};
constinit const NodeKind kDepthHead = {
    .name = "depth_head", .declare = DeclareHeadOfNormed, .names = kHeadNames};

}  // namespace tandem::model
