// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tandem::platform {

// Turns Abseil's deadlock detection off; called at the start of a program that users run. As distributions
// build Abseil, every Lock searches for a cycle in the order of locks. The search takes five times as long as
// the lock, lets only one thread search at a time, and aborts the process if it finds a cycle, even one that
// never deadlocks. The programs of the tests keep the detection on.
inline void IgnoreLockCycles() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

// How a standard descriptor behaves that was closed at the start. kSilent: reads see the end of the file, and
// output is discarded. kUnusable: reads and writes fail.
enum class ClosedDescriptor { kSilent, kUnusable };

// Opens /dev/null for each of standard input, output and error that was closed when this program started.
// Otherwise the next file that the program opens would get that number, and log lines would be written into
// it. Call it in the first line of main. Returns an error if /dev/null cannot be opened.
absl::Status OpenClosedStandardDescriptors(ClosedDescriptor becomes);

// Blocks the signals that ask a daemon to end, in this thread and the threads that it starts, so that only
// sigwait receives them. These are SIGTERM, SIGINT and, unless the program was started with it ignored
// (nohup), SIGHUP. Returns them. Call before the first thread starts.
sigset_t BlockEndSignals();

// The path of the program `name` in the folder of this program's executable; `name` itself if that folder is
// unknown.
std::string BesideThisProgram(const std::string& name);

}  // namespace tandem::platform
