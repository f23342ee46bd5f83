// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "plan/job_plan.h"

namespace tandem::plan {

// The bytes that one rank sends to others in an optimizer step, by the purpose of its communicator ("gather",
// "reduce", "dispatch"), computed from the train program's operands. In a collective over n ranks each rank
// sends (n - 1) / n of the buffer. If routers decide how many rows travel, it is what they send when they
// spread tokens evenly. Validations, checkpoints, reports and messages of a few bytes do not count. Empty for
// one rank.
std::map<std::string, double> SentBytes(const JobPlan& plan);

}  // namespace tandem::plan
