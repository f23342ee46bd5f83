// SPDX-License-Identifier: Apache-2.0
#include "platform/host_name.h"

#include <unistd.h>

namespace tandem::platform {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace tandem::platform
