// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// `.owner` in a checkpoint directory names the job that saves there. Two jobs in one directory would mistake
// each other's checkpoints for their own, so only the owner saves.
//
// A live owner renews its file every kRenewal. A newcomer only checks whether the file changes, and never
// compares its time with a clock, because the clocks of two machines differ, and clocks jump. An owner whose
// file does not change for kPatience counts as dead, but only while the newcomer itself can write to the
// directory: a disk that is too slow for the owner makes the newcomer wait as well.
//
// The owner may be stopped (SIGSTOP) instead of dead, so it must do no harm when it continues: its next
// renewal reports that the directory is lost, its temporary folders are recognized by its name and removed,
// and it checks the owner before it publishes.

inline constexpr absl::Duration kRenewal = absl::Seconds(1);
inline constexpr absl::Duration kPatience = absl::Seconds(4);

struct Owner {
  std::string job;   // its id
  std::string name;  // of the job; may be empty
  int attempt = 1;
  std::string host;  // of its rank 0's machine; may be empty
};

// "job 3f2a (headers, attempt 2) on host a".
std::string ToText(const Owner& owner);

// Returns NotFound if no job owns `directory`.
absl::StatusOr<Owner> ReadOwner(platform::Files& files, const std::string& directory);

// Whether the directory is empty except for files that jobs write there as they start (start_files.h). Such a
// directory has no owner and no checkpoint.
absl::StatusOr<bool> HoldsNothing(platform::Files& files, const std::string& directory);

// Makes `self` the owner of a directory that has none. Returns AlreadyExists if it has one.
absl::Status PublishOwner(platform::Files& files, const std::string& directory, const Owner& self);

// Makes `self` the owner of the directory, which must exist. Replaces an earlier attempt of the same job at
// once, and another job if that is dead. `pause` waits for kRenewal; it is called between two looks at the
// other job's file. If two newcomers compete, one of them is refused.
//
// Returns the paths of checkpoints that the other job has not finished. They were renamed, so that it cannot
// publish them (retention.h). The caller, or else the next save, must remove them (remove_together.h).
// Returns FailedPrecondition, naming both jobs, if the other job is alive, and Aborted if a later attempt of
// this job owns the directory.
absl::StatusOr<std::vector<std::string>> TakeOwnership(platform::Files& files, const std::string& directory,
                                                       const Owner& self, const std::function<void()>& pause);

// Shows that `self` is alive. Returns NotFound if the file is gone, and Aborted, naming both, if another job
// or a later attempt owns the directory. Any other error says nothing about ownership.
absl::Status RenewOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// Writes the file again after it was removed. `unseen` is the time since `self` last looked at it. Returns
// Aborted if that is at least kPatience and the directory holds checkpoints, because another job may have
// saved there meanwhile. Returns AlreadyExists if another owner has written the file.
absl::Status RestoreOwnership(platform::Files& files, const std::string& directory, const Owner& self,
                              absl::Duration unseen);

// Whether `.owner` in `directory` names `self`. Returns false if it cannot be read.
bool Owns(platform::Files& files, const std::string& directory, const Owner& self);

// Removes the file if it is that of `self`, so that the next job need not wait.
absl::Status ReleaseOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// Returns Aborted, naming both, if another job or a later attempt owns the directory, and OK if the directory
// has no owner.
absl::Status CheckOwner(platform::Files& files, const std::string& directory, const Owner& self);

}  // namespace tandem::checkpoint
