// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jobspec/check_files.h"
#include "platform/clock.h"
#include "tandem/v1/job.pb.h"
#include "tandem/v1/workers.pb.h"
#include "worker/input.h"
#include "worker/instruction_names.h"
#include "worker/state.h"

namespace tandem::worker {

// What the daemon asks other parts of the program about a job before it runs it. Both functions are called
// from several threads at once, and may still be running after the daemon was destroyed.
struct JobChecks {
  // Returns what is wrong with the files that the job needs, in one line; empty if nothing is.
  std::function<std::string(const v1::JobSpec& resolved, const jobspec::BeforePath& before)> check_files;
  // Returns the names of the job's instructions, for messages; empty if they are unknown.
  std::function<InstructionNames(const v1::JobSpec& resolved)> name_program;
};

// The threads that check jobs. A thread hangs forever if it inspects a path on a file system that never
// answers; that delays no check on another thread, nor the destructor. There are at most kMost threads,
// hanging ones included; if none is free, a check waits for one. While a check has been hanging on a path for
// kPathLimit or longer, other checks do not inspect this path but end with Checked::problem, so that the
// attempts of one job do not use up all threads. Thread-safe.
class CheckThreads {
 public:
  static constexpr int kMost = 16;

  // For each check, receives a LookingAt before each path is inspected; if nothing is wrong with the paths,
  // an empty LookingAt, which says that all have answered; and last, Checked. Called under a lock, one call
  // at a time, from a check's thread, or from Start if no thread can start. Must not call Start or Drop.
  using Sink = std::function<void(Input)>;

  CheckThreads(const JobChecks& checks, const platform::Clock& clock, Sink sink);
  // Does not wait for checks in progress: they no longer call the sink, nor use the clock.
  ~CheckThreads();
  CheckThreads(const CheckThreads&) = delete;
  CheckThreads& operator=(const CheckThreads&) = delete;

  void Start(const v1::Assignment& assignment);

  // Cancels a check that still waits for a thread.
  void Drop(const AttemptKey& attempt);

 private:
  class Shared;

  const std::shared_ptr<Shared> shared_;  // shared with the threads
};

}  // namespace tandem::worker
