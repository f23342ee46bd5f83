// SPDX-License-Identifier: Apache-2.0
#include "platform/host.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "platform/log.h"

namespace tandem::platform {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

bool IsLocalAddress(std::string_view address) {
  // "127.example.org" is a name, and may be anywhere.
  const std::string_view host = address.substr(0, address.rfind(':'));
  return address.starts_with("unix:") || address.starts_with("localhost:") || address.starts_with("[::1]:") ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos);
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
