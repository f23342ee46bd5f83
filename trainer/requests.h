// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "trainer/profiling.h"

namespace tandem::trainer {

// What the daemon may ask of a running rank, as bits: every rank sends its bits with the terms of
// GradientNorm. The host issues one run ahead, so all ranks act on the union after the run behind the one
// that agreed on it: one step later (run_sequence.h). Telling one rank is enough.
enum RequestBit : uint32_t {
  kRequestCheckpoint = 1,  // checkpoint, and go on
  kRequestStop = 2,        // checkpoint where there is a directory, then stop
};

// Requests between their arrival and their answer. Thread-safe.
class RequestBox {
 public:
  // `id` is acknowledged once the ranks have acted; 0: no answer is wanted. An id that came before is
  // ignored.
  void Add(uint32_t bits, uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  // The bits of everything that has come since the last Take; those are in flight until Finish.
  uint32_t Take() ABSL_LOCKS_EXCLUDED(mu_);

  // Steps to record. An id that came before is ignored.
  void AddProfile(const ProfileSteps& asked) ABSL_LOCKS_EXCLUDED(mu_);

  // The first of those that the ranks have not agreed on; id 0: none.
  ProfileSteps WantedProfile() ABSL_LOCKS_EXCLUDED(mu_);

  // The ranks have, perhaps before this one was asked.
  void ProfileAgreed(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  // The ids in flight: the ranks have acted on them.
  std::vector<uint64_t> Finish() ABSL_LOCKS_EXCLUDED(mu_);

  // Every id not yet answered, in flight or not: the job ends.
  std::vector<uint64_t> FinishAll() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  uint32_t bits_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> seen_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> in_flight_ ABSL_GUARDED_BY(mu_);
  std::deque<ProfileSteps> profiles_ ABSL_GUARDED_BY(mu_);  // not agreed on
  std::set<uint64_t> seen_profiles_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::trainer
