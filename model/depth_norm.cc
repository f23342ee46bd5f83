// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// hidden = norm(x).
NodeDeclaration DeclareNorm(const DecoderShapes& s, const char* part, schedules::Place place) {
  return {
      .place = place,
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .parts = {{.name = part, .parameters = {NormOver(s, "norm", s.hidden)}}},
      .forward = {.reads = {"x"},
                  .writes = {"hidden"},
                  .parameters = true,
                  .row_elements = s.Elements(2 * s.hidden)},
      .backward_input = {.reads = {"x"},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .parameter_gradients = true,
                         .scratch = {NormWork(s)},
                         .row_elements = s.Elements(3 * s.hidden)},
      .recomputes = true,
  };
}

NodeDeclaration DeclareMainNorm(const DecoderShapes& s) {
  return DeclareNorm(s, "main_norm", schedules::Place::kBefore);
}
NodeDeclaration DeclareDepthNorm(const DecoderShapes& s) {
  return DeclareNorm(s, "depth_norm", schedules::Place::kAfter);
}

constexpr ParameterName kMainNormNames[] = {{"norm", "model.norm.weight"}};
constexpr ParameterName kDepthNormNames[] = {{"norm", "shared_head.norm.weight"}};

}  // namespace

constinit const NodeKind kMainNorm = {
    .name = "main_norm", .declare = DeclareMainNorm, .names = kMainNormNames, .of_model = true};
constinit const NodeKind kDepthNorm = {
    .name = "depth_norm", .declare = DeclareDepthNorm, .names = kDepthNormNames};

}  // namespace tandem::model
