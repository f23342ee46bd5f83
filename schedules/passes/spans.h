// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedules/build/stage_frame.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// The uses of a unit's parameters that one gather serves: instructions first to last.
struct Span {
  UnitId unit = -1;
  int first = -1;
  int last = -1;
};

// The distinct units of `parts`, in the order of their first part.
std::vector<UnitId> UnitsOf(const std::vector<UnitPart>& parts);

// Returns the spans in the order of their first use. Two consecutive uses of a unit are in one span if the
// passes between them use units of at most `hold` other layers. For a unit with keeps_gathered, all uses by
// one microbatch are also in one span; for a unit with gathers_once, all uses of the run. Units that are not
// gathered have spans too.
std::vector<Span> FindSpans(const Outline& outline, const StageFrame& frame, int hold,
                            const std::vector<Instruction>& passes);

}  // namespace tandem::schedules
