// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "worker/processes.h"
#include "worker/run_as.h"
#include "worker/task_thread.h"

namespace tandem::worker {

struct SpawnRequest {
  std::string program;
  std::string log_file;  // appended to: standard output and error
  int control_fd = -1;   // the trainer's ends; they stay the caller's to close
  int page_fd = -1;
};

struct SpawnedProcess {
  ProcessId id;
  int pidfd = -1;  // the caller's to close
};

// Starts trainers, all from one thread that lives as long as this object: the death signal of a child fires
// when the *thread* that forked it ends. Thread-safe.
class Spawner {
 public:
  // `run_as`: the user of the programs; none: that of this process.
  explicit Spawner(std::optional<RunAs> run_as = std::nullopt) : run_as_(std::move(run_as)) {}

  // Blocks until the program runs (exec succeeded) or cannot. It leads its own process group, inherits
  // nothing but standard input (/dev/null), output, error and the two descriptors, and dies with this
  // process.
  absl::StatusOr<SpawnedProcess> Spawn(const SpawnRequest& request);

 private:
  const std::optional<RunAs> run_as_;
  TaskThread thread_;
};

}  // namespace tandem::worker
