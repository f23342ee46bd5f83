// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tandem::link {

// How a trainer ends: what its exit code means to the daemon. 64 to 78 except 75 are all the user's errors
// (sysexits.h); trainers use 64. Any other code, or a signal, is the machine's or our own fault.
enum class ExitCode {
  kDone = 0,          // all steps done and Finished sent
  kUserError = 64,    // the job cannot run as it was asked for: the message says what to change
  kPreempted = 75,    // stopped to make room, after its checkpoint: run it again
  kPeerLost = 80,     // a communication error: another rank is gone, the cause lies there
  kStopped = 81,      // the daemon asked, or the daemon is gone
  kFenced = 82,       // no controller heard of for too long, or a newer attempt is running
  kNumeric = 83,      // gradients or loss stopped being finite
  kOutOfMemory = 84,  // host or device memory
};

}  // namespace tandem::link
