// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fsdp/norm_outcome.h"
#include "trainer/profiling.h"
#include "trainer/run_sequence.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

// The requests of the daemon to a running rank, as bits. Every rank sends its bits with the terms of
// GradientNorm, so it is enough if one rank receives a request. All ranks act on the union of the bits one
// step later, because the host has already issued the next run when it learns of the union (run_sequence.h).
enum RequestBit : uint32_t {
  kRequestCheckpoint = 1,  // save a checkpoint and continue
  kRequestStop = 2,        // save a checkpoint if there is a directory, then stop
};

// Holds requests from their arrival to their answer. Thread-safe.
class RequestBox {
 public:
  // Adds requests. `id` is answered once the ranks have acted; it is 0 if no answer is expected. Ignores an
  // id that was added before.
  void Add(uint32_t bits, uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the bits of everything added since the last Take. Their ids are in flight until Finish.
  uint32_t Take() ABSL_LOCKS_EXCLUDED(mu_);

  // Adds a request to record steps. An id that was added before is ignored.
  void AddProfile(const ProfileSteps& asked) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the first request to record steps that the ranks have not agreed on; its id is 0 if there is
  // none.
  ProfileSteps WantedProfile() ABSL_LOCKS_EXCLUDED(mu_);

  // Must be called when the ranks have agreed on this request, possibly before it was added here.
  void ProfileAgreed(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the ids in flight. Must be called when the ranks have acted on them.
  std::vector<uint64_t> Finish() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns all ids without an answer, in flight or not. For the end of the job.
  std::vector<uint64_t> FinishAll() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  uint32_t bits_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> seen_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> in_flight_ ABSL_GUARDED_BY(mu_);
  std::deque<ProfileSteps> profiles_ ABSL_GUARDED_BY(mu_);  // requests that are not agreed on
  std::set<uint64_t> seen_profiles_ ABSL_GUARDED_BY(mu_);
};

// The requests in the outcome of a norm.
Agreed AgreedOf(const fsdp::NormOutcome& outcome);

// Agrees, between runs that compute no norm, on the requests that the ranks of `comm` have received since the
// last time; each rank may have received only some. Collective, on the host; all ranks call it for the same
// step. Throws InstructionError with that step.
Agreed AgreeOnRequests(comm::Communicator& comm, RequestBox& requests, int64_t step);

}  // namespace tandem::trainer
