// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/job_plan.h"
#include "schedules/program/program.h"

namespace tandem::plan {

// The numbers that text.h and json.h both tell of a plan.

// A unit on one rank, and in its programs.
struct UnitRow {
  int64_t parameters = 0;     // of all experts, so that the rows add up to the model's
  int64_t elements = 0;       // of the unit's layouts, gaps included
  int64_t held_elements = 0;  // of its weights, and of each moment, on every rank, padding included
  int64_t gathered_bytes = 0;
  int gathers = 0;     // of a step
  int reductions = 0;  // of a step
  int validation_gathers = 0;
  bool operator==(const UnitRow&) const = default;
};

// By unit of the plan.
std::vector<UnitRow> UnitRows(const JobPlan& plan);

struct WaitCounts {
  int all = 0;
  int for_memory = 0;
};

WaitCounts CountWaits(const schedules::Program& program);

bool Validates(const JobPlan& plan);

// Of one validation, at most: forwards alone, which are a third of a step's.
double ValidationFlops(const JobPlan& plan);

}  // namespace tandem::plan
