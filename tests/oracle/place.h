// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::oracle {

// The bytes that an operand of an instruction refers to in one run.
struct Place {
  std::vector<std::pair<int64_t, int64_t>> ranges;  // [begin, end) of every part, or of one part
  int64_t begin = 0;                                // begin of the buffer's element
  bool host = false;                                // in the pinned region, not in the arena
  bool divided = false;                             // the operand covers several parts
};

Place PlaceOf(const schedules::Program& program, const schedules::Operand& operand, int run);

// The run whose elements of rings an instruction accesses. A graph always accesses those with which it was
// captured, here run 0's.
int RunOfRings(const schedules::Instruction& instruction, int run);

}  // namespace tandem::oracle
