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

// Writes a rank's progress to its shared page: the step in progress, the instruction that finished last, and
// when it finished. The step on the page never decreases. Thread-safe.
//
// On a device whose calls return when the work is done, such as the CPU, the page is exact. On a device whose
// calls only issue work, an event marks its end. A thread polls these events, and the page is at most kPeriod
// late.
class Progress {
 public:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(10);

  struct Position {
    int64_t run = -1;  // number of the run; runs end in the order of their numbers
    int64_t step = 0;
    int64_t instruction = -1;  // index among the instructions of all programs
  };

  // If `looks`, starts a thread that polls the events given to Issued. `page` must outlive this object.
  Progress(link::SharedPage& page, bool looks);
  ~Progress() ABSL_LOCKS_EXCLUDED(mu_);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Must be called when nothing is in flight and the next work belongs to `step`.
  void Begins(int64_t step);

  // Must be called when the instruction at `position` has finished.
  void Finished(const Position& position);

  // Must be called when the instruction at `position` is issued on `stream`, in the order of the stream.
  // `end` is an event right after the instruction. Requires `looks`.
  void Issued(const device::Stream* stream, const Position& position, const device::Event& end)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Must be called when other work has finished. Sets only the time.
  void Moved();

  // Polls the events now, so that the page shows all work that finished before this call.
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
  int64_t run_ ABSL_GUARDED_BY(mu_) = -1;  // run of the instruction on the page; used only if `looks`
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // set if `looks`
};

// An OnWorkProgress (checkpoint/work_together.h) that logs how far the ranks have read or removed a
// checkpoint.
class ShownProgress {
 public:
  // If `logs`, logs a line with `what` for each tenth of the work, unless the ranks finish before a meeting
  // at which a tenth is done. `unit` is the unit of the amounts, "bytes" or "files". Calls `moved` at every
  // meeting.
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
