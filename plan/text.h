// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "schedules/program/program.h"

namespace tandem::plan {

// The numbers of a plan that both text.h and json.h show.

// A unit on one rank and in its programs.
struct UnitRow {
  int64_t parameters = 0;     // counts all experts, so that the rows add up to the model's
  int64_t elements = 0;       // of the unit's layouts, gaps included
  int64_t held_elements = 0;  // of its weights, and of each moment, that one rank holds; with padding
  int64_t gathered_bytes = 0;
  int gathers = 0;     // in one step
  int reductions = 0;  // in one step
  int validation_gathers = 0;
  bool operator==(const UnitRow&) const = default;
};

// One row for each unit of the plan.
std::vector<UnitRow> UnitRows(const JobPlan& plan);

struct WaitCounts {
  int all = 0;
  int for_memory = 0;
};

WaitCounts CountWaits(const schedules::Program& program);

// The most FLOPs of one validation. Forwards alone are a third of a step's FLOPs.
double ValidationFlops(const JobPlan& plan);

struct PlanTextOptions {
  bool program = false;  // appends the texts of all programs to the tables
};

// The text of `tandem plan`: model, step, memory of one rank, units with their gathers and reductions, and
// programs. Lines end in "\n".
std::string PlanToText(const JobPlan& plan, const PlanTextOptions& options);

}  // namespace tandem::plan
