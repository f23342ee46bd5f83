// SPDX-License-Identifier: Apache-2.0
#include "platform/check.h"

#include <cstdlib>
#include <string>

#include "platform/log.h"

namespace tandem::platform {

void CheckFailed(const char* file, int line, const char* condition, std::string_view message) {
  Log(LogLevel::kError, "internal error: " + std::string(message),
      {{"condition", condition}, {"file", file}, {"line", std::to_string(line)}});
  std::abort();
}

}  // namespace tandem::platform
