// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/node.h"
#include "model/node_kinds.h"

namespace tandem::parity {

// hidden = x ⊙ scale: a kind of node that model/ does not know, and its code.
inline model::NodeDeclaration DeclareScale(const model::DecoderShapes& s) {
  const model::TensorSpec row{"product", {s.tokens, s.hidden}};
  return {
      .place = schedules::Place::kAfter,
      .inputs = {model::HiddenState("x", s)},
      .outputs = {{.tensor = model::HiddenState("hidden", s).tensor, .gradient = true}},
      .parts = {{.name = "scale", .parameters = {model::NormOver("scale", s.hidden)}}},
      .forward = {.reads = {"x"}, .writes = {"hidden"}, .parameters = true},
      .backward_input = {.reads = {"x"},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .parameter_gradients = true,
                         .scratch = {row, {"sum", {s.hidden}}}},
      .recomputes = true,
  };
}

inline constexpr model::ParameterName kScaleNames[] = {{"scale", "scale.weight"}};
inline constexpr model::NodeKind kScale = {.name = "scale", .declare = DeclareScale, .names = kScaleNames};

std::unique_ptr<model::Node> MakeScaleNode(const model::NodeContext& context);

}  // namespace tandem::parity
