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

// The control group of one rank and its children. Its folder goes with this object, once they have ended.
class RankGroup {
 public:
  RankGroup(RankGroups& groups, std::string folder, platform::Descriptor processes);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // A process that writes "0" to it is in the group.
  int processes_fd() const { return processes_.get(); }

  // How many of its processes the kernel has killed because there was no memory left.
  int64_t OutOfMemoryKills() const;
  int64_t PeakBytes() const;  // held by all its processes together; 0: unknown

 private:
  RankGroups& groups_;
  const std::string folder_;
  const platform::Descriptor processes_;
};

// A control group (v2) for each rank, so that a rank that runs out of memory takes neither the others nor the
// daemon along, even if their common group has memory.oom.group, as Kubernetes sets it:
//
//   GROUP/worker    the daemon: a group whose children have controllers has no process of its own
//   GROUP/ranks     memory.max is that of GROUP without what the daemon needs, so that ranks reach it first
//   GROUP/ranks/N   a rank; memory.oom.group: its processes die together
//
// Thread-safe.
class RankGroups {
 public:
  // Moves this process, and those that started it, to GROUP/worker. Null, and nothing is changed, if this
  // process was not given its group (a unit of systemd has Delegate=; a container has groups of its own), if
  // other processes run in it, or if this process may not do that. `root` is put before /proc and /sys, for
  // tests.
  static std::unique_ptr<RankGroups> Make(const std::string& root = "");

  // Makes a group, which this object outlives. Null if that fails, which is logged once.
  std::unique_ptr<RankGroup> MakeGroup() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class RankGroup;

  explicit RankGroups(std::string folder) : folder_(std::move(folder)) {}
  void Remove(const std::string& folder) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string folder_;  // GROUP/ranks
  absl::Mutex mu_;
  int64_t made_ ABSL_GUARDED_BY(mu_) = 0;
  bool complained_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::string> doomed_ ABSL_GUARDED_BY(mu_);  // whose last process had not ended
};

}  // namespace tandem::worker
