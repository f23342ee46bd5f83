// SPDX-License-Identifier: Apache-2.0
#include "platform/descriptor_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "platform/log.h"

namespace tandem::platform {

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
