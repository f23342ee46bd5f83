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
  std::vector<gid_t> groups;  // all groups, `group` too
};

// Finds a user by name. NotFound if there is none. PermissionDenied if this process runs as another user,
// unless as root, since only root may start processes as another user. Errors are one line with the flag
// --user.
absl::StatusOr<RunAs> FindUser(const std::string& name);

// The descriptors remain the caller's: Spawn closes none of them.
struct SpawnRequest {
  std::string program;
  std::string log_file;  // standard output and error are appended to it
  int control_fd = -1;   // the trainer's end of its channel to this process (link::Channel)
  int page_fd = -1;      // its shared page (link::MappedPage::fd)
  int group_fd = -1;     // of its control group (RankGroup::processes_fd); -1: the group of this process
};

struct SpawnedProcess {
  ProcessId id;
  int pidfd = -1;  // the caller closes it
};

// Starts trainers, all from one thread that lives as long as this object, because the kernel sends a child
// its death signal (PR_SET_PDEATHSIG) when the *thread* that forked it ends. Thread-safe.
class Spawner {
 public:
  // Programs run as the user `run_as`, or if nullopt as the user of this process.
  explicit Spawner(std::optional<RunAs> run_as = std::nullopt) : run_as_(std::move(run_as)) {}

  // Starts the program. Blocks until exec has succeeded or failed. The program leads its own process group,
  // inherits only standard input (/dev/null), output, error, control_fd and page_fd, and dies with this
  // process. If memory runs out, the kernel kills it rather than this process (oom_score_adj). Its working
  // directory is /: the daemon's own working directory may be removed meanwhile, libraries fail without one,
  // and all paths of a job are absolute.
  absl::StatusOr<SpawnedProcess> Spawn(const SpawnRequest& request);

 private:
  const std::optional<RunAs> run_as_;
  TaskThread thread_;
};

}  // namespace tandem::worker
