// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "model/depths.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

std::vector<PartSpec> DepthHeadParts(const DecoderShapes& s) {
  const ParameterSpec weight{.name = "weight", .shape = {s.vocabulary, s.hidden}};
  const bool shares = s.tied || s.depth > 0;  // a part that another kind declares
  return {{.name = s.tied ? "embedding" : "head",
           .unit = shares ? (s.tied ? "embedding" : "head") : "",
           .parameters = {weight},
           .frozen = s.depth > 0 && s.config.depths.detached}};
}

// loss = cross_entropy(weight · x, tokens `depth` + 1 places ahead), over the rows that have such a token
// (depths.h). Like the heads of models without depths (head.cc), but that x is normalised already: the
// forward leaves the gradient of the logits where these were, or takes a chunk of tokens at a time and writes
// every gradient.
NodeDeclaration DeclareDepthHead(const DecoderShapes& s) {
  const PredictedRows predicted = s.predicted();
  const double flops =
      2.0 * static_cast<double>(predicted.rows()) * static_cast<double>(s.hidden * s.vocabulary);
  const auto elements = [&](int64_t columns) {
    return static_cast<double>(predicted.rows()) * static_cast<double>(columns);
  };
  NodeDeclaration declaration{
      .inputs = {HiddenOfDepth("x", s.depth, s), BatchTokens(s)},
      .outputs = {{.tensor = {"loss", {1}, ElementType::kFloat64}, .loss = true}},
      .parts = DepthHeadParts(s),
      .forward = {.reads = {"x", "tokens"},
                  .writes = {"loss"},
                  .parameters = true,
                  .rounds = predicted.Chunks(s.logit_rows),
                  .flops = flops,
                  .row_elements = elements(3 * s.vocabulary)},
      .rows = static_cast<double>(predicted.rows()),
  };
  PassSpec& forward = declaration.forward;
  if (s.logit_rows < s.tokens) {
    forward.gradient_writes = {"x"};
    forward.parameter_gradients = true;
    forward.scratch = {{"logits", {std::min(s.logit_rows, predicted.length), s.vocabulary}},
                       {"lse", {predicted.rows()}, ElementType::kStatistics},
                       ProductsWork(s)};
    forward.flops = 3 * flops;
    forward.row_elements = elements(2 * s.hidden + 3 * s.vocabulary);
    return declaration;
  }
  forward.writes.emplace_back("grad_logits");
  forward.scratch = {{"lse", {predicted.rows()}, ElementType::kStatistics}, ProductsWork(s)};
  declaration.outputs.push_back({.tensor = {"grad_logits", {predicted.rows(), s.vocabulary}}});
  declaration.backward_input = {.reads = {"x", "grad_logits"},
                                .gradient_writes = {"x"},
                                .parameters = true,
                                .parameter_gradients = true,
                                .scratch = {ProductsWork(s)},
                                .rounds = predicted.Chunks(s.logit_rows),
                                .flops = 2 * flops,
                                .row_elements = elements(2 * s.hidden)};
  return declaration;
}

constexpr ParameterName kDepthHeadNames[] = {{"weight", "lm_head.weight"}};

}  // namespace

constinit const NodeKind kHeadOfNormed = {
    .name = "head", .declare = DeclareDepthHead, .names = kDepthHeadNames};
constinit const NodeKind kDepthHead = {
    .name = "depth_head", .declare = DeclareDepthHead, .names = kDepthHeadNames};

}  // namespace tandem::model
