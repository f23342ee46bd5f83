// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tandem::link {

// What a trainer's exit code means to the daemon. Codes 64 to 78 except 75 all mean an error of the user
// (sysexits.h); trainers use 64. Any other code, or death by a signal, is a fault of the machine or of
// Tandem.
enum class ExitCode {
  kDone = 0,          // all steps done and Finished sent
  kUserError = 64,    // the job cannot run as specified; its message says what to change
  kPreempted = 75,    // stopped to make room, after its checkpoint: to be run again
  kPeerLost = 80,     // communication failed because another rank is gone, which is the cause
  kStopped = 81,      // asked to stop by the daemon, or the daemon is gone
  kFenced = 82,       // heard of no controller for too long, or a newer attempt is running
  kNumeric = 83,      // the gradients or the loss are not finite
  kOutOfMemory = 84,  // host or device memory
};

}  // namespace tandem::link
