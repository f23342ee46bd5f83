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
  kPreempted = 75,      // it would go on elsewhere; Slurm's and Kubernetes' scripts know the code
  kCancelled = 130,     // also: interrupted by Ctrl-C
  kOutputClosed = 141,  // standard output is not read any more; what a shell shows for SIGPIPE
};

// The exit code of a command, or the error that it failed with.
using Outcome = absl::StatusOr<ExitCode>;

// The error of a command that ends with `code`. `text`, for people, says in one line what failed, where, and
// what to do next; empty if it has been printed.
absl::Status Failure(ExitCode code, absl::string_view text);

// The error of a command whose call to the controller failed; a Failure stays as it is. `what`: "cancel
// headers", in front of the text; empty: the text alone.
absl::Status CallFailure(const absl::Status& status, absl::string_view what, const Address& address);

// Prints why a command failed, "tandem: ...", a line, on standard error. Returns the exit code. What is not a
// Failure gets `what` in front, and ends with kUsage if it is InvalidArgument, otherwise with kFailed.
int Fail(Console& console, const absl::Status& status, absl::string_view what);

// "tandem: ...", a line, on standard error.
void Note(Console& console, absl::string_view text);

}  // namespace tandem::cli
