// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/mailbox.h"
#include "worker/processes.h"

namespace tandem::worker {

// The user that ranks run as.
struct RunAs {
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;  // all of them
};

// Finds a user by name. NotFound if there is none; PermissionDenied if it is another user than this process's
// and this process is not root's, because only root may change its user. Errors are one line with the flag.
absl::StatusOr<RunAs> FindUser(const std::string& name);

struct SpawnRequest {
  std::string program;
  std::string log_file;  // appended to: standard output and error
  int control_fd = -1;   // the trainer's ends; they stay the caller's to close
  int page_fd = -1;
  int group_fd = -1;  // of the control group that it is to be in (rank_groups.h); -1: that of this process
};

struct SpawnedProcess {
  ProcessId id;
  int pidfd = -1;  // the caller's to close
};

// Starts trainers, all from one thread that lives as long as this object: the death signal of a child fires
// when the *thread* that forked it ends. Thread-safe.
class Spawner {
 public:
  // `run_as`: the user of the programs; nullopt: that of this process.
  explicit Spawner(std::optional<RunAs> run_as = std::nullopt) : run_as_(std::move(run_as)) {}

  // Blocks until the program runs (exec succeeded) or cannot. It leads its own process group, inherits
  // nothing but standard input (/dev/null), output, error and the two descriptors, and dies with this
  // process. If memory runs out, the kernel kills it before this process (oom_score_adj). Its working
  // directory is /, since the daemon's may be removed while the daemon runs, and libraries fail without one;
  // whatever paths a job has are absolute.
  absl::StatusOr<SpawnedProcess> Spawn(const SpawnRequest& request);

 private:
  const std::optional<RunAs> run_as_;
  TaskThread thread_;
};

}  // namespace tandem::worker
