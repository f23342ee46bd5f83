// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "tandem/v1/state.pb.h"
#include "worker/state.h"

namespace tandem::worker {

// How a process ended: with exit_code if signal is 0, otherwise by the signal.
struct Exit {
  int exit_code = 0;
  int signal = 0;
  bool before_kill = false;  // it was already dying when the daemon sent SIGKILL
  // If the kernel killed it for lack of memory: a message with the memory that it held and the memory that
  // there was. Otherwise empty.
  std::string out_of_memory = {};
  bool operator==(const Exit&) const = default;
};

// Returns why a rank is gone that exited this way; nullopt if it finished and exited with 0. `rank` is its
// state before the exit, with the last sample of its page.
std::optional<v1::Cause> CauseOfExit(const std::string& worker, const AttemptState& attempt,
                                     const RankState& rank, const Exit& exit, absl::Time now);

// Fills in the fields that a rank's own Failed message does not set: rank, worker and, if missing, time and
// step.
v1::Cause CompleteFailed(v1::Cause failed, const std::string& worker, const RankState& rank, absl::Time now);

// The cause of an attempt that this worker refuses, so that none of its ranks starts here.
v1::Cause CauseOfRefusal(const std::string& worker, v1::FailureClass failure, const std::string& reason,
                         const std::string& message, absl::Time now);

// CauseOfNoStart: the cause of a rank that could not be started. CauseNeverStarted: of a rank whose attempt
// was stopped before it started.
v1::Cause CauseOfNoStart(const std::string& worker, const RankState& rank, const std::string& why,
                         absl::Time now);
v1::Cause CauseNeverStarted(const std::string& worker, const RankState& rank, const std::string& reason,
                            absl::Time now);

// Where a rank was at this sample, for messages: "while loading" or "in step 37, after forward of microbatch
// 2" (the instruction that finished last). Never empty.
std::string Whereabouts(const AttemptState& attempt, const PageSample& sample);

}  // namespace tandem::worker
