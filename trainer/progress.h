// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "device/stream.h"
#include "link/shared_page.h"
#include "platform/steady_condition.h"

namespace tandem::trainer {

// Keeps the place on a rank's shared page: the step in progress, the instruction that finished last, and when
// that was. Steps never go back on it. Thread-safe.
//
// Where work is done when its call returns (the CPU), the page is exact. Where a call only issues, the event
// behind the work marks its end; a thread looks at these events, never waits for one, and the
// page is behind by kPeriod at most.
class Progress {
 public:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(10);

  struct Position {
    int64_t run = -1;  // its number: runs end in their order
    int64_t step = 0;
    int64_t instruction = -1;  // among those of all programs
  };

  // looks: calls only issue. Starts the thread. `page` outlives it.
  Progress(link::SharedPage& page, bool looks);
  ~Progress() ABSL_LOCKS_EXCLUDED(mu_);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Nothing is in flight, and what comes next is of this step.
  void Begins(int64_t step);

  // The instruction has finished.
  void Finished(const Position& position);

  // It will have finished when `end`, an event behind it on `stream`, is reached. In the stream's order.
  // Requires that it looks.
  void Issued(const device::Stream* stream, const Position& position, const device::Event& end)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Something finished that has no place of its own.
  void Moved();

  // Looks now: what has finished before the call is on the page after it.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Issue {
    Position position;
    device::Event end;
  };
  // The issued work of one stream, oldest first; what is before `next` has finished.
  struct Queue {
    std::vector<Issue> issued;
    size_t next = 0;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  link::SharedPage& page_;
  absl::Mutex mu_;
  platform::SteadyCondition ending_changed_;
  std::map<const device::Stream*, Queue> queues_ ABSL_GUARDED_BY(mu_);
  int64_t run_ ABSL_GUARDED_BY(mu_) = -1;  // of the position on the page, where it looks
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // where it looks
};

}  // namespace tandem::trainer
