// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "cli/cluster/client.h"
#include "cli/terminal/error.h"
#include "cli/watch/watch_state.h"
#include "cli/watch/watch_view.h"
#include "platform/clock.h"

namespace tandem::cli {

struct FollowRequest {
  std::string job;      // id or name
  bool reports = true;  // if false, only the job's state is followed
  bool norms = false;   // of every step
  // Whether to wait for a controller that does not answer the first call. Set if the controller has just
  // accepted the job, and so must come back.
  bool patient = false;
};

// Shows a job in `view` until it has ended. If the controller goes away, says so and tries again until it is
// back, then continues at state.cursor: every step is shown once, in order; steps that the stream left out
// are read from the history. Calls `keep_going` at least every 100 ms; its error ends the watch and is
// returned.
//
// Returns OK if the job has ended: state.job says how, and the view's Finish has been called, and its ShowLog
// if a rank failed and request.reports is set. Otherwise returns the error of the first connection (unless
// patient), NotFound, or the error of keep_going; Finish has been called if anything was shown.
absl::Status FollowJob(Client& client, const FollowRequest& request, const platform::Clock& clock,
                       const std::function<absl::Status()>& keep_going, WatchState& state, WatchView& view);

// Returns 0 for SUCCEEDED, 130 for CANCELLED, 75 for FAILED because a worker was asked to end, otherwise 1.
ExitCode ExitCodeOf(const v1::Job& job);

}  // namespace tandem::cli
