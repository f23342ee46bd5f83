// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace tandem::platform {

// A thread that runs `work`, for the caller to join or detach. Where the machine has none left, as a limit of
// processes has it, std::thread throws; this is an error, with what to do.
absl::StatusOr<std::thread> StartThread(std::function<void()> work);

}  // namespace tandem::platform
