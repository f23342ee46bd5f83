// SPDX-License-Identifier: Apache-2.0
#include "platform/thread.h"

#include <system_error>
#include <utility>

#include "platform/system_error.h"

namespace tandem::platform {

absl::StatusOr<std::thread> StartThread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    return SystemError(error.code().value(), "start a thread");
  }
}

}  // namespace tandem::platform
