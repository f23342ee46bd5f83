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
// A live owner renews its file every kRenewal. A newcomer compares the file with what it saw before, and
// never with its own clock, because the clocks of two machines differ, and clocks jump. An owner whose file
// does not change for kPatience counts as dead, but only while the newcomer itself can write to the
// directory: a disk that is too slow for the owner makes the newcomer wait as well.
//
// The owner may be stopped (SIGSTOP) instead of dead, so it must do no harm when it continues: its next
// renewal reports that the directory is lost, its temporary folders have its own name and are removed, and it
// checks the owner before it publishes.

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

// Whether the directory is empty except for files that jobs write there as they start (start_files.h). Then
// it has no owner, and no checkpoint in it could be mistaken for another job's.
absl::StatusOr<bool> HoldsNothing(platform::Files& files, const std::string& directory);

// Makes `self` the owner of a directory that has none. Returns AlreadyExists if it has one.
absl::Status PublishOwner(platform::Files& files, const std::string& directory, const Owner& self);

// Makes `self` the owner of the directory, which must exist. An earlier attempt of the same job gives way at
// once. Another job gives way if it is dead; `pause` waits for a kRenewal between two looks at its file. If
// there are two newcomers, one is refused.
//
// Returns the paths of what the other job has not finished saving, renamed so that it cannot publish them
// (retention.h). They must be removed (remove_together.h); a save that comes first does that. Returns
// FailedPrecondition, naming both jobs, if the other job is alive, and Aborted if a later attempt of this job
// owns the directory.
absl::StatusOr<std::vector<std::string>> TakeOwnership(platform::Files& files, const std::string& directory,
                                                       const Owner& self, const std::function<void()>& pause);

// Shows that `self` is alive. Returns NotFound if the file is gone, and Aborted, naming both, if another job
// or a later attempt owns the directory. Any other error says nothing about ownership.
absl::Status RenewOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// Writes the file again after it was removed. `unseen` is how long `self` has not looked. Returns Aborted if
// that is more than kPatience, because another job may have come and gone, unless the directory holds
// nothing. Returns AlreadyExists if there is a file again.
absl::Status RestoreOwnership(platform::Files& files, const std::string& directory, const Owner& self,
                              absl::Duration unseen);

// Whether `.owner` there names `self`; false if it cannot be read.
bool Owns(platform::Files& files, const std::string& directory, const Owner& self);

// Removes the file, so that the next job need not wait. Leaves another owner's file.
absl::Status ReleaseOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// Returns Aborted, naming both, if another job or a later attempt owns the directory. A directory without the
// file has no owner.
absl::Status CheckOwner(platform::Files& files, const std::string& directory, const Owner& self);

}  // namespace tandem::checkpoint
