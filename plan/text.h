// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/job_plan.h"

namespace tandem::plan {

struct PlanTextOptions {
  bool program = false;  // the texts of all programs, after the tables
};

// What `tandem plan` prints: model, step, memory of one rank, units with their gathers and reductions,
// programs. Lines end in "\n".
std::string PlanToText(const JobPlan& plan, const PlanTextOptions& options);

}  // namespace tandem::plan
