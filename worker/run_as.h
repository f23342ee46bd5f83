// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::worker {

// The user that ranks run as.
struct RunAs {
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;  // all of them
};

// By name. NotFound where there is no such user; PermissionDenied where it is another one and this process is
// not root's: only root may become somebody else. One line with the flag.
absl::StatusOr<RunAs> FindUser(const std::string& name);

}  // namespace tandem::worker
