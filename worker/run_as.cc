// SPDX-License-Identifier: Apache-2.0
#include "worker/run_as.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <array>

#include "absl/strings/str_cat.h"

namespace tandem::worker {

absl::StatusOr<RunAs> FindUser(const std::string& name) {
  std::array<char, 16384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("--user ", name, ": this machine has no such user; make it, or name another"));
  }
  if (geteuid() != 0 && geteuid() != found->pw_uid) {
    return absl::PermissionDeniedError(absl::StrCat(
        "--user ", name, ": only root may run jobs as another user; start the worker as root, or as ", name));
  }
  RunAs out{.user = found->pw_uid, .group = found->pw_gid, .groups = {}};
  int count = 64;
  do {
    out.groups.resize(static_cast<size_t>(count));
  } while (getgrouplist(name.c_str(), out.group, out.groups.data(), &count) < 0);
  out.groups.resize(static_cast<size_t>(count));
  return out;
}

}  // namespace tandem::worker
