// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cli/cluster/address.h"
#include "cli/terminal/console.h"

namespace tandem::cli {

// What `tandem` ends with. run, watch, wait, submit --wait and submit --follow exit with the status of the
// job that they follow: SUCCEEDED kOk, FAILED kFailed or kPreempted, CANCELLED kCancelled.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kNotFound = 3,
  kInvalidSpec = 4,
  kDenied = 5,
  kUnreachable = 6,
  kTimeout = 7,
  kPreempted = 75,      // it would go on elsewhere; Slurm's and Kubernetes' scripts know the code
  kCancelled = 130,     // also: interrupted by Ctrl-C
  kOutputClosed = 141,  // nobody reads standard output any more; what a shell shows for SIGPIPE
};

// What a command failed with, for people: one line that says what failed, where, and what to do next.
struct Error {
  ExitCode code = kFailed;
  std::string text;
};

// A call to the controller that failed. `what`: "cancel headers".
Error CallError(const absl::Status& status, absl::string_view what, const Address& address);

// Prints "tandem: ...", a line, on standard error. Returns the exit code.
int Fail(Console& console, const Error& error);
int Fail(Console& console, ExitCode code, absl::string_view text);

// "tandem: ...", a line, on standard error.
void Note(Console& console, absl::string_view text);

}  // namespace tandem::cli
