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

// Records the collectives of the runs in flight in the order in which they started, so that the oldest
// pending collective is known when one hangs. Also counts them on the shared page. At most two runs are in
// flight, and their parity distinguishes them. Thread-safe.
class CollectiveLog {
 public:
  // The collectives of one instruction.
  struct Entry {
    comm::Communicator* communicator = nullptr;
    uint64_t last_sequence = 0;  // number of collectives started on the communicator, including these
    const schedules::Instruction* instruction = nullptr;
    int64_t step = 0;  // the step that the instruction works for
  };

  // Both must outlive the log. The page must have room for all communicators.
  CollectiveLog(comm::Communicators& communicators, link::SharedPage& page);

  // Must be called when run `number` is issued. Drops the record of the earlier run of the same parity.
  void Begin(int parity, int64_t number) ABSL_LOCKS_EXCLUDED(mu_);

  // Must be called before an instruction starts collectives on communicators[use]. Returns the argument
  // `entry` for Started. The instruction must outlive the log.
  size_t Starts(int parity, int use, const schedules::Instruction& instruction, int64_t step)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Must be called after that instruction has started all its collectives.
  void Started(int parity, int use, size_t entry) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the oldest instruction with a collective that has not ended.
  std::optional<Entry> OldestPending() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Run {
    int64_t number = -1;
    std::vector<Entry> entries;  // in the order in which they started
  };

  comm::Communicators& communicators_;
  link::SharedPage& page_;
  mutable absl::Mutex mu_;
  std::array<Run, 2> runs_ ABSL_GUARDED_BY(mu_);  // by parity
};

}  // namespace tandem::trainer
