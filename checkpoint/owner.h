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
// A live owner renews its file every kRenewal. A newcomer only checks whether the file changes. It never
// compares the file's time with a clock, because the clocks of two machines differ, and clocks jump. An owner
// whose file does not change for kPatience counts as dead, but only while the newcomer itself can write to
// the directory: a disk that is too slow for the owner makes the newcomer wait as well.
//
// An owner that seems dead may only be stopped (SIGSTOP), so it must do no harm when it continues: its next
// renewal reports that the directory is lost, its temporary folders, which have its job and attempt in their
// names, are renamed and removed, and it checks the owner before it publishes.

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
// once, and another job only if it is dead. `pause` must wait for kRenewal; it is called between two looks at
// the other job's file. If two newcomers compete, one of them is refused.
//
// If it replaced another job, returns the folders of unfinished saves in the directory, as
// SetAsideTemporaries (retention.h) does: renamed, so that the other job cannot publish them; otherwise
// returns nothing. The caller, or else the next save, must remove them (remove_together.h). Returns
// FailedPrecondition, naming both jobs, if the other job is alive, and Aborted if a later attempt of this job
// owns the directory.
absl::StatusOr<std::vector<std::string>> TakeOwnership(platform::Files& files, const std::string& directory,
                                                       const Owner& self, const std::function<void()>& pause);

// Shows that `self` is alive. Returns NotFound if the file is gone, and Aborted, naming both owners, if
// another job or a later attempt owns the directory. Any other error says nothing about ownership.
absl::Status RenewOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// Writes the file again after it was removed. `unseen` is the time since `self` last read the file or found
// it missing. Returns Aborted if that is at least kPatience and the directory is not empty (HoldsNothing),
// because another job may have saved there meanwhile. Returns AlreadyExists if another owner has written the
// file.
absl::Status RestoreOwnership(platform::Files& files, const std::string& directory, const Owner& self,
                              absl::Duration unseen);

// Whether `.owner` in `directory` names `self`. Returns false if it cannot be read.
bool Owns(platform::Files& files, const std::string& directory, const Owner& self);

// Removes the file if it is that of `self`, so that the next job need not wait.
absl::Status ReleaseOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// Returns Aborted, naming both owners, if another job or a later attempt of this job owns the directory.
// Returns OK if `self` or an earlier attempt of this job owns it, or if it has no owner. Any other error says
// nothing about ownership.
absl::Status CheckOwner(platform::Files& files, const std::string& directory, const Owner& self);

}  // namespace tandem::checkpoint
