#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "plan/job_plan.h"

namespace tandem::cli {

// What the check says of the train program without the waits of one instruction: its proof, tried out.
struct WithoutWait {
  bool refused = false;
  std::string text;  // one or two lines
};

// InvalidArgument names the instructions that wait, where this one does not.
absl::StatusOr<WithoutWait> CheckWithoutWait(const plan::JobPlan& plan, int instruction);

}  // namespace tandem::cli
