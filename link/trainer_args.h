// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::link {

// This folder is what a worker daemon and its trainers agree on: TrainerArgs (the trainer's command line),
// Channel (messages both ways), SharedPage (progress that the daemon reads without a message) and ExitCode
// (the meaning of the trainer's exit).

// The command line of a trainer, which only the worker daemon writes:
//   tandem-trainer --control-fd N --page-fd M --parent-pid P
struct TrainerArgs {
  int control_fd = -1;   // inherited: the trainer's end of the socket pair (Channel)
  int page_fd = -1;      // inherited: the shared page (MappedPage::Attach)
  pid_t parent_pid = 0;  // the daemon's; a trainer with another getppid() exits at once

  bool operator==(const TrainerArgs&) const = default;

  // argv[0] is the program's name; every flag must be given once, in any order. InvalidArgumentError names
  // the wrong flag.
  static absl::StatusOr<TrainerArgs> Parse(int argc, const char* const* argv);

  // {program, "--control-fd", "3", ...}
  std::vector<std::string> ToArgv(const std::string& program) const;
};

}  // namespace tandem::link
