// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "comm/communicators.h"
#include "link/shared_page.h"
#include "schedules/program/program.h"

namespace tandem::trainer {

// The collectives of the runs in flight, as they were started, so that the oldest one that has not ended is
// found when one hangs. Also counts them on the shared page. A run is named by its parity: two are in flight
// at most. Thread-safe.
class CollectiveLog {
 public:
  // The collectives of one instruction.
  struct Entry {
    comm::Communicator* communicator = nullptr;
    uint64_t last_sequence = 0;  // how many the communicator has started with them
    const schedules::Instruction* instruction = nullptr;
    int64_t step = 0;  // that the instruction works for
  };

  // Both outlive it. The page must have room for all communicators.
  CollectiveLog(comm::Communicators& communicators, link::SharedPage& page);

  // A run is issued; forgets the one before the former.
  void Begin(int parity, int64_t number) ABSL_LOCKS_EXCLUDED(mu_);

  // Before the call of an instruction that starts collectives on communicators[use]; returns what Started
  // wants. The instruction outlives the log.
  size_t Starts(int parity, int use, const schedules::Instruction& instruction, int64_t step)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Behind that call, which has started all of them.
  void Started(int parity, int use, size_t entry) ABSL_LOCKS_EXCLUDED(mu_);

  // The oldest instruction with a collective that has not ended.
  std::optional<Entry> OldestPending() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Run {
    int64_t number = -1;
    std::vector<Entry> entries;  // as they were started
  };

  comm::Communicators& communicators_;
  link::SharedPage& page_;
  mutable absl::Mutex mu_;
  std::array<Run, 2> runs_ ABSL_GUARDED_BY(mu_);  // by parity
};

}  // namespace tandem::trainer
