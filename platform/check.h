// SPDX-License-Identifier: Apache-2.0
#pragma once

// TANDEM_CHECK(condition, "what must be true") ends the process with file, line and message.
// For our own bugs only, never for input.
#define TANDEM_CHECK(condition, message)                                        \
  do {                                                                          \
    if (!(condition)) [[unlikely]] {                                            \
      ::tandem::platform::CheckFailed(__FILE__, __LINE__, #condition, message); \
    }                                                                           \
  } while (false)

#include <string_view>

namespace tandem::platform {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, std::string_view message);

}  // namespace tandem::platform
