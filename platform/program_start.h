// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tandem::platform {

// For the start of a program that users run. Distributions build Abseil so that every Lock also looks for
// cycles of locks, one thread of the process at a time, which costs five times as much as the lock, and
// aborts the process if it finds one, even if these threads never wait for each other. The tests' own
// processes look, and so find what may deadlock.
inline void IgnoreLockCycles() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

// What a closed standard descriptor becomes. kSilent: input is at its end, and output is discarded.
// kUnusable: reads and writes still fail.
enum class ClosedDescriptor { kSilent, kUnusable };

// Opens /dev/null as each of standard input, output and error that was closed when this program started.
// Otherwise the next files that it opens would get these numbers, and lines of its log would go into one of
// them. Call it in the first line of main. Returns an error if /dev/null cannot be opened.
absl::Status OpenClosedStandardDescriptors(ClosedDescriptor becomes);

// Blocks the signals that ask a daemon to end, in this thread and those that it starts, so that only sigwait
// sees them: SIGTERM, SIGINT, and SIGHUP (its terminal was closed) unless it was ignored at the start, as
// nohup has it. Call before the first thread starts.
sigset_t BlockEndSignals();

// The path of the program `name` in the folder of this program's own file; `name` if that folder is unknown.
std::string BesideThisProgram(const std::string& name);

}  // namespace tandem::platform
