#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// `.owner` in a checkpoint directory: the job that saves there. Two jobs in one directory would take each
// other's temporary folders for leftovers, so only the owner saves.
//
// An owner that lives renews its file, once every kRenewal. The newcomer compares what it sees with what it
// saw before, never with its own clock: the clocks of two machines may differ. An owner whose file did not
// change for kPatience is taken for dead.

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

// NotFound where nobody owns `directory`.
absl::StatusOr<Owner> ReadOwner(platform::Files& files, const std::string& directory);

// Makes `self` the owner; creates the directory. An earlier attempt of the same job gives way at once.
// Another job gives way if it is dead: `pause` waits for a kRenewal between two looks at its file.
// FailedPrecondition, naming both, where the other job lives. Aborted where a later attempt of this job owns
// it.
absl::Status TakeOwnership(platform::Files& files, const std::string& directory, const Owner& self,
                           const std::function<void()>& pause);

// Says that `self` lives. Puts a file back that somebody has removed. Aborted, naming both, where another
// job, or a later attempt, owns the directory; any other error says nothing about that.
absl::Status RenewOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// The next job need not wait. Leaves the file of another owner.
absl::Status ReleaseOwnership(platform::Files& files, const std::string& directory, const Owner& self);

// Aborted, naming both, where another job, or a later attempt, owns the directory. A directory without
// the file has no owner.
absl::Status CheckOwner(platform::Files& files, const std::string& directory, const Owner& self);

}  // namespace tandem::checkpoint
