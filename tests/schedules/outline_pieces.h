// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/program/outline.h"

namespace tandem::schedules {

// Helpers that make the outlines of test_outlines.h.

inline int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

ValueId AddValue(Outline& outline, const std::string& name, int64_t bytes, int64_t gradient_bytes = 0,
                 ValueKind kind = ValueKind::kActivation);

// Parts start at multiples of 64 elements.
UnitId AddUnit(Outline& outline, const std::string& name, int layer, const std::vector<std::string>& parts,
               const std::vector<int64_t>& elements);

}  // namespace tandem::schedules
