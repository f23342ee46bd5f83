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
  bool reports = true;  // without them only the job's state is followed
  bool norms = false;   // of every step
  // Whether an absence of the controller is waited out from the start, because it has just taken the job.
  bool patient = false;
};

// Watches a job until it has ended, showing it. While the controller is away it says so and tries again
// until `keep_going` ends it, then goes on at its cursor: every step is shown once, in order; steps that the
// stream left out are read from the history. `keep_going` is asked at least every 100 ms; its error ends the
// watch and is returned.
//
// OK: the job has ended and state.job says how; Finish (and ShowLog for a failed rank) have been called.
// Errors otherwise: of the first connection (unless patient), NotFound, or of keep_going; Finish has been
// called if anything was shown.
absl::Status FollowJob(Client& client, const FollowRequest& request, const platform::Clock& clock,
                       const std::function<absl::Status()>& keep_going, WatchState& state, WatchView& view);

// SUCCEEDED 0, CANCELLED 130, FAILED as one of its workers was asked to end 75, else 1.
ExitCode ExitCodeOf(const v1::Job& job);

}  // namespace tandem::cli
