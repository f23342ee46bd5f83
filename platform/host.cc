// SPDX-License-Identifier: Apache-2.0
#include "platform/host.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "platform/log.h"
#include "platform/net_address.h"

namespace tandem::platform {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

bool IsLocalAddress(std::string_view address) {
  const std::optional<HostPort> at = ReadHostPort(address);
  return address.starts_with("unix:") || (at.has_value() && IsLoopback(at->host));
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) {
    return;
  }
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    Log(LogLevel::kWarning, "RLIMIT_NOFILE could not be raised", {{"error", std::strerror(errno)}});
  }
}

uint64_t DescriptorLimit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

}  // namespace tandem::platform
