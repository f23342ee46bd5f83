// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "cli/commands/commands.h"

namespace tandem::cli {

// A command line, parsed.
struct Invocation {
  TargetFlags target;                    // selects the controller
  std::function<int(Context&)> command;  // empty: only `text` is to be printed
  std::string text;                      // help (exit_code 0) or the line of a usage error (kUsage)
  ExitCode exit_code = kOk;
};

// Parses a command line. `tandem __complete WORD...`, which the scripts of `tandem completion` call, sets
// `text` to what may replace the last word: one candidate a line, with its description behind a tab; or
// ":files" or ":jobs" if the shell is to list files or jobs.
Invocation ParseCommandLine(int argc, const char* const* argv);

}  // namespace tandem::cli
