// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/decoder_outline.h"
#include "model/node_declaration.h"

namespace tandem::model::test {

// Layouts like those that jobs have: every parameter begins at a multiple of `alignment` elements, but those
// of one block follow each other without gaps.
inline std::vector<UnitLayout> LayOut(const std::vector<UnitParameters>& units, int64_t alignment) {
  std::vector<UnitLayout> layouts;
  for (const UnitParameters& unit : units) {
    UnitLayout& layout = layouts.emplace_back();
    int block = -1;
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.block < 0 || parameter.block != block) {
        layout.elements = (layout.elements + alignment - 1) / alignment * alignment;
      }
      block = parameter.block;
      const int64_t begin = layout.elements;
      layout.elements += NumElements(parameter.shape);
      layout.parameters.push_back({.begin = begin, .end = layout.elements});
    }
    layout.elements = (layout.elements + alignment - 1) / alignment * alignment;
  }
  return layouts;
}

}  // namespace tandem::model::test
