#pragma once

#include <vector>

#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// What a program communicates, read from it.
struct UnitCounts {
  int gathers = 0;
  int reductions = 0;
  bool operator==(const UnitCounts&) const = default;
};

// Per unit of the outline.
std::vector<UnitCounts> CountCollectives(const Outline& outline, const Program& program);

// Instructions that wait for another stream, and the waits in all.
struct WaitCounts {
  int instructions = 0;
  int waits = 0;
};

WaitCounts CountWaits(const Program& program);

}  // namespace tandem::schedules_v1
