// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/cluster/address.h"
#include "cli/terminal/console.h"

namespace tandem::cli {

// Exit codes of `tandem`. run, watch, wait, submit --wait and submit --follow exit with the status of the
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
  kPreempted = 75,      // a new submission would continue it; deploy/slurm does that
  kCancelled = 130,     // also: interrupted by Ctrl-C
  kOutputClosed = 141,  // nothing reads standard output any more; the code of SIGPIPE in a shell
};

// The exit code of a command, or the error that it failed with.
using Outcome = absl::StatusOr<ExitCode>;

// Returns the error of a command that ends with `code`. `text` says in one line what failed, where, and what
// to do next; empty if it has been printed.
absl::Status Failure(ExitCode code, absl::string_view text);

// Turns the failed status of a call to a controller into a Failure; a Failure stays as it is. The Failure's
// text begins with `what` ("cancel headers"), unless that is empty.
absl::Status CallFailure(const absl::Status& status, absl::string_view what, const Address& address);

// Prints why a command failed on standard error, as a line "tandem: ...", and returns the exit code. A status
// that is not a Failure gets `what` in front; its code is kUsage if it is InvalidArgument, otherwise kFailed.
int Fail(Console& console, const absl::Status& status, absl::string_view what);

// Prints "tandem: " and `text` as a line on standard error.
void Note(Console& console, absl::string_view text);

}  // namespace tandem::cli
