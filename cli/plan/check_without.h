// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "plan/job_plan.h"

namespace tandem::cli {

// The proof of the train program, tried out: what the check says once something is missing.
struct CheckAnswer {
  bool refused = false;
  std::string text;  // two lines: what is missing, and the check's answer
};

// Without the waits of one instruction. InvalidArgument names the instructions that wait, where this one does
// not.
absl::StatusOr<CheckAnswer> CheckWithoutWait(const plan::JobPlan& plan, int instruction);

// Without one instruction; those that waited for it wait for what it waited for. InvalidArgument where there
// is not such an instruction.
absl::StatusOr<CheckAnswer> CheckWithoutInstruction(const plan::JobPlan& plan, int instruction);

}  // namespace tandem::cli
