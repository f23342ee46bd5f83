#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "controller/store/history.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// Reports bypass the state machine: the row of a running job learns its step only at its next event, a
// reader of the job from the history. Where that is damaged, the row's step has to do.
inline absl::Status FillLastStep(History& history, v1::Job& job) {
  const absl::StatusOr<int64_t> step = history.LastStep(job.id());
  if (!step.ok()) {
    return absl::IsDataLoss(step.status()) ? absl::OkStatus() : step.status();
  }
  job.set_last_step(std::max(job.last_step(), *step));
  return absl::OkStatus();
}

}  // namespace tandem::controller
