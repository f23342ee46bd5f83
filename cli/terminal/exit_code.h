#pragma once

namespace tandem::cli {

// What `tandem` ends with. run, watch, wait, submit --wait and submit --follow exit with the status of the
// job that they follow: SUCCEEDED kOk, FAILED kFailed, CANCELLED kCancelled.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kNotFound = 3,
  kInvalidSpec = 4,
  kDenied = 5,
  kUnreachable = 6,
  kTimeout = 7,
  kCancelled = 130,     // also: interrupted by Ctrl-C
  kOutputClosed = 141,  // nobody reads standard output any more; what a shell shows for SIGPIPE
};

}  // namespace tandem::cli
