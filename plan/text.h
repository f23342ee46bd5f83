// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/job_plan.h"

namespace tandem::plan {

struct PlanTextOptions {
  bool program = false;  // appends the texts of all programs to the tables
};

// The text of `tandem plan`: model, step, memory of one rank, units with their gathers and reductions, and
// programs. Lines end in "\n".
std::string PlanToText(const JobPlan& plan, const PlanTextOptions& options);

}  // namespace tandem::plan
