// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/decoder_outline.h"
#include "model/node_declaration.h"
#include "model/unit_parameters.h"

namespace tandem::model::test {

// Layouts like those that jobs have: every parameter begins at a multiple of `alignment` elements, but those
// of one block follow each other without gaps. `precision` says which parts have types of their own.
inline std::vector<UnitLayout> LayOut(const std::vector<UnitParameters>& units, int64_t alignment,
                                      const Precision& precision = ComputeType::kFp32) {
  std::vector<UnitLayout> layouts;
  for (const UnitParameters& unit : units) {
    UnitLayout& layout = layouts.emplace_back();
    const UnitClasses classes = ClassesOf(unit, precision);
    layout.elements.resize(classes.types.size());
    const auto align = [&](int64_t& end) { end = (end + alignment - 1) / alignment * alignment; };
    int block = -1;
    for (const Parameter& parameter : unit.parameters) {
      int64_t& end = layout.elements[classes.of_part[parameter.part]];
      if (parameter.block < 0 || parameter.block != block) {
        align(end);
      }
      block = parameter.block;
      const int64_t begin = end;
      end += NumElements(parameter.shape);
      layout.parameters.push_back({.begin = begin, .end = end});
    }
    std::for_each(layout.elements.begin(), layout.elements.end(), align);
  }
  return layouts;
}

}  // namespace tandem::model::test
