// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "tandem/v1/state.pb.h"
#include "worker/state.h"

namespace tandem::worker {

// How a process ended: by its exit_code if signal is 0.
struct Exit {
  int exit_code = 0;
  int signal = 0;
  bool before_kill = false;  // it was dying already when the daemon sent it SIGKILL
  // If the kernel killed it because there was no memory left: how much it held, and of how much. Otherwise
  // empty.
  std::string out_of_memory = {};
  bool operator==(const Exit&) const = default;
};

// Returns why a rank that exited this way is gone; nullopt if it finished and exited with 0. `rank` is its
// state before the exit, with the last look at its page.
std::optional<v1::Cause> CauseOfExit(const std::string& worker, const AttemptState& attempt,
                                     const RankState& rank, const Exit& exit, absl::Time now);

// Fills what a rank's own Failed message left open: rank, worker, time, step.
v1::Cause CompleteFailed(v1::Cause failed, const std::string& worker, const RankState& rank, absl::Time now);

// The cause of an attempt none of whose ranks may start here.
v1::Cause CauseOfRefusal(const std::string& worker, v1::FailureClass failure, const std::string& reason,
                         const std::string& message, absl::Time now);

// The causes of a rank that could not be started, and of one that was never started.
v1::Cause CauseOfNoStart(const std::string& worker, const RankState& rank, const std::string& why,
                         absl::Time now);
v1::Cause CauseNeverStarted(const std::string& worker, const RankState& rank, const std::string& reason,
                            absl::Time now);

// "in step 37, after forward of microbatch 2", the instruction that finished last; "while loading"; never
// empty.
std::string Whereabouts(const AttemptState& attempt, const PageSample& sample);

}  // namespace tandem::worker
