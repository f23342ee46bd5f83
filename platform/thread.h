// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace tandem::platform {

// Starts a thread that runs `work`; the caller joins or detaches it. If the machine allows no more threads
// (std::thread throws), returns an error that says what to do.
absl::StatusOr<std::thread> StartThread(std::function<void()> work);

}  // namespace tandem::platform
