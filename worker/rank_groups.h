// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "platform/regular_file.h"

namespace tandem::worker {

class RankGroups;

// The control group of one rank and its children. The destructor kills their processes and removes the group,
// at the latest when MakeGroup is called after they have ended.
class RankGroup {
 public:
  RankGroup(RankGroups& groups, std::string folder, platform::Descriptor processes);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // A process that writes "0" to this file joins the group.
  int processes_fd() const { return processes_.get(); }

  // How many of its processes the kernel has killed for lack of memory.
  int64_t OutOfMemoryKills() const;
  int64_t PeakBytes() const;  // of memory, of all its processes together; 0: unknown

 private:
  RankGroups& groups_;
  const std::string folder_;
  const platform::Descriptor processes_;
};

// Makes a control group (v2) for each rank. If a rank runs out of memory, the kernel then kills neither other
// ranks nor the daemon, even if their common group has memory.oom.group, which Kubernetes sets:
//
//   GROUP/worker    the daemon, because a group with controlled children must have no process itself
//   GROUP/ranks     memory.max is a bit less than GROUP's, so that ranks reach their limit before the daemon
//   GROUP/ranks/N   a rank; memory.oom.group is set: its processes die together
//
// Thread-safe.
class RankGroups {
 public:
  // Moves this process, and the processes that started it, to GROUP/worker. Returns null and changes nothing
  // if this process does not own its group (it does in a systemd unit with Delegate= and in a container), if
  // other processes run in the group, or if this process lacks the permission. Tests prefix the paths /proc
  // and /sys with `root`.
  static std::unique_ptr<RankGroups> Make(const std::string& root = "");

  // Makes the group of a rank. This object must outlive it. Returns null on failure, and logs the first one.
  std::unique_ptr<RankGroup> MakeGroup() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class RankGroup;

  explicit RankGroups(std::string folder) : folder_(std::move(folder)) {}
  void Remove(const std::string& folder) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string folder_;  // GROUP/ranks
  absl::Mutex mu_;
  int64_t made_ ABSL_GUARDED_BY(mu_) = 0;
  bool complained_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::string> doomed_ ABSL_GUARDED_BY(mu_);  // groups to remove once their processes have ended
};

}  // namespace tandem::worker
