// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

namespace tandem::platform {

// Blocks the signals that ask a daemon to end, in this thread and those that it starts, so that only sigwait
// sees them: SIGTERM, SIGINT, and SIGHUP (its terminal was closed) unless it was ignored at the start, as
// nohup has it. Call before the first thread starts.
sigset_t BlockEndSignals();

}  // namespace tandem::platform
