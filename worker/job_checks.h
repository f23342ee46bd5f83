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

// The questions of the daemon to other parts about a job before it runs it. Both functions are called from
// several threads at once, and may still run when the daemon is gone.
struct JobChecks {
  // Returns what is wrong with the files that the job needs, one line each; empty if nothing is.
  std::function<std::string(const v1::JobSpec& resolved, const jobspec::BeforePath& before)> check_files;
  // Returns the instructions of its program, for messages; empty if they are not known.
  std::function<InstructionNames(const v1::JobSpec& resolved)> name_program;
};

// The threads on which jobs are checked. A path may be on a file system that never answers, and then its
// thread hangs forever: it belongs to no attempt, and holds up neither other attempts nor the end of this
// object. There are at most kMost threads, those that hang among them; a check that finds none waits for one.
// A path at which another check has hung for kPathLimit is not looked at again, so that a job's attempts do
// not use up all threads. Thread-safe.
class CheckThreads {
 public:
  static constexpr int kMost = 16;

  // Gets LookingAt before each path and behind the last, then Checked; from the threads of the checks.
  using Sink = std::function<void(Input)>;

  CheckThreads(const JobChecks& checks, const platform::Clock& clock, Sink sink);
  // Waits for no check. Checks in progress send nothing more, and do not use the clock any more.
  ~CheckThreads();
  CheckThreads(const CheckThreads&) = delete;
  CheckThreads& operator=(const CheckThreads&) = delete;

  void Start(const v1::Assignment& assignment);

  // Drops a check that still waits for a thread.
  void Drop(const AttemptKey& attempt);

 private:
  class Shared;

  const std::shared_ptr<Shared> shared_;  // with the threads
};

}  // namespace tandem::worker
