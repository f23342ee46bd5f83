// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "checkpoint/work_together.h"
#include "device/stream.h"
#include "link/shared_page.h"
#include "platform/steady_condition.h"

namespace tandem::trainer {

// Keeps the position on a rank's shared page: the step in progress, the instruction that finished last, and
// the time of that. The step on the page never decreases. Thread-safe.
//
// If work is done when its call returns, as on the CPU, the page is exact. If a call only issues, the event
// behind the work marks its end. A thread then looks at these events without waiting for them, and the page
// is at most kPeriod late.
class Progress {
 public:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(10);

  struct Position {
    int64_t run = -1;  // number of its run; runs end in this order
    int64_t step = 0;
    int64_t instruction = -1;  // index among the instructions of all programs
  };

  // `looks` is true if calls only issue; then a thread is started. `page` outlives this object.
  Progress(link::SharedPage& page, bool looks);
  ~Progress() ABSL_LOCKS_EXCLUDED(mu_);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Nothing is in flight, and the next work belongs to this step.
  void Begins(int64_t step);

  // The instruction has finished.
  void Finished(const Position& position);

  // The instruction will have finished when `end`, an event behind it on `stream`, is reached. Must be called
  // in the order of the stream. Requires `looks`.
  void Issued(const device::Stream* stream, const Position& position, const device::Event& end)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Something without a position of its own has finished.
  void Moved();

  // Looks at the events now: what finished before the call is on the page after it.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Issue {
    Position position;
    device::Event end;
  };
  // The issued work of one stream, oldest first. Work before `next` has finished.
  struct Queue {
    std::vector<Issue> issued;
    size_t next = 0;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  link::SharedPage& page_;
  absl::Mutex mu_;
  platform::SteadyCondition ending_changed_;
  std::map<const device::Stream*, Queue> queues_ ABSL_GUARDED_BY(mu_);
  int64_t run_ ABSL_GUARDED_BY(mu_) = -1;  // run of the position on the page; used only if `looks`
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // set if `looks`
};

// Shows that the ranks make progress while they read or remove a checkpoint: an OnWorkProgress
// (checkpoint/work_together.h).
class ShownProgress {
 public:
  // If `logs`, the log gets a line with `what` for each tenth, unless everything is done between two of the
  // ranks' meetings. `unit` is the unit of the amounts, "bytes" or "files". `moved` is called every time.
  ShownProgress(bool logs, std::string what, std::string unit, std::function<void()> moved);

  void operator()(const checkpoint::WorkProgress& progress);

 private:
  bool logs_;
  std::string what_;
  std::string unit_;
  std::function<void()> moved_;
  std::string path_;
  int64_t tenth_ = 0;  // tenths of the path that were logged
};

}  // namespace tandem::trainer
