// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/synchronization/mutex.h"

namespace tandem::platform {

// For the start of a program that users run. Distributions build Abseil so that every Lock also looks for
// cycles of locks, one thread of the process at a time, which costs five times as much as the lock, and
// aborts the process if it finds one, even if these threads never wait for each other. The tests' own
// processes look, and so find what may deadlock.
inline void IgnoreLockCycles() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace tandem::platform
