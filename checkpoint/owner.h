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

// `.owner` in a checkpoint directory: the job that saves there. Two jobs in one directory would take each
// other's checkpoints for their own, so only the owner saves.
//
// A live owner renews its file every kRenewal. A newcomer compares what it sees with what it saw before,
// never with its own clock: the clocks of two machines differ, and clocks jump. An owner whose file does not
// change for kPatience counts as dead, but only while the newcomer itself can write to the directory: a disk
// that is too slow for the owner makes the newcomer wait as well.
//
// The owner may not be dead but stopped (SIGSTOP), so it must do no harm when it wakes up: its next renewal
// says that the directory is lost, its temporary folders have its own name and are removed, and it checks the
// owner before it publishes.

inline constexpr absl::Duration kRenewal = absl::Seconds(1);
inline constexpr absl::Duration kPatience = absl::Seconds(4);

struct Owner {
  std::string job;   // id
  std::string name;  // of the job; may be empty
  int attempt = 1;
  std::string host;  // of its rank 0; may be empty
};

// "job 3f2a (headers, attempt 2) on host a".
std::string ToText(const Owner& owner);

// NotFound if no job owns `directory`.
absl::StatusOr<Owner> ReadOwner(platform::Files& files, const std::string& directory);

// Whether the directory is empty, but for what jobs write there as they start (start_files.h). Nobody owns it
// then, and no other has saved there what could be taken for another's.
absl::StatusOr<bool> HoldsNothing(platform::Files& files, const std::string& directory);

// Makes `self` the owner of a directory that has none. AlreadyExists where it has one.
absl::Status PublishOwner(platform::Files& files, const std::string& directory, const Owner& self);

// Makes `self` the owner of the directory, which must exist. An earlier attempt of the same job gives way at
// once. Another job gives way if it is dead: `pause` waits for a kRenewal between two looks at its file. Of
// two newcomers one is refused. Returns what the other job has not finished to save, paths under which it
// cannot publish it (folder.h): it is to be removed (remove_together.h), and a save that comes first does
// that. FailedPrecondition, naming both, where the other job is alive. Aborted where a later attempt of this
// job owns the directory.
absl::StatusOr<std::vector<std::string>> TakeOwnership(platform::Files& files, const std::string& directory,
                                                       const Owner& self, const std::function<void()>& pause);

// Shows that `self` is alive. NotFound where the file is gone. Aborted, naming both, where another job, or a
// later attempt, owns the directory; any other error says nothing about that.
absl::Status RenewOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// Writes the file again that somebody has removed. `unseen` is for how long `self` has not looked: Aborted
// after kPatience, in which another job may have come and gone, unless the directory holds nothing.
// AlreadyExists where there is a file again.
absl::Status RestoreOwnership(platform::Files& files, const std::string& directory, const Owner& self,
                              absl::Duration unseen);

// Whether `.owner` there names `self`; false where it cannot be read.
bool Owns(platform::Files& files, const std::string& directory, const Owner& self);

// The next job need not wait. Leaves the file of another owner.
absl::Status ReleaseOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// Aborted, naming both, where another job, or a later attempt, owns the directory. A directory without
// the file has no owner.
absl::Status CheckOwner(platform::Files& files, const std::string& directory, const Owner& self);

}  // namespace tandem::checkpoint
