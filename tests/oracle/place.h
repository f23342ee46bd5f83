// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::oracle {

// The bytes that an operand of a run's instruction names.
struct Place {
  std::vector<std::pair<int64_t, int64_t>> ranges;  // [begin, end) of every part, or of one
  int64_t begin = 0;                                // of the buffer's element
  bool host = false;                                // in the pinned region, not in the arena
  bool divided = false;                             // several parts at once
};

Place PlaceOf(const schedules::Program& program, const schedules::Operand& operand, int run);

// The run whose elements of rings an instruction accesses: a graph does forever what it was captured with,
// here in run 0.
int RunOfRings(const schedules::Instruction& instruction, int run);

}  // namespace tandem::oracle
