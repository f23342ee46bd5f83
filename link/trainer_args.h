// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::link {

// A worker daemon and a trainer share: TrainerArgs (its command line), Channel (messages both ways),
// SharedPage (what the daemon reads without a message) and ExitCode (what the trainer's exit means).

// The command line of a trainer, which only the worker daemon writes:
//   tandem-trainer --control-fd N --page-fd M --parent-pid P
struct TrainerArgs {
  int control_fd = -1;   // inherited: its end of the socket pair (Channel)
  int page_fd = -1;      // inherited: the shared page (MappedPage::Attach)
  pid_t parent_pid = 0;  // the daemon: a trainer whose getppid() is another one exits at once

  bool operator==(const TrainerArgs&) const = default;

  // argv[0] is the program's name. Every flag once, in any order; InvalidArgumentError names the one that is
  // wrong.
  static absl::StatusOr<TrainerArgs> Parse(int argc, const char* const* argv);

  // {program, "--control-fd", "3", ...}
  std::vector<std::string> ToArgv(const std::string& program) const;
};

}  // namespace tandem::link
