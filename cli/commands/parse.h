// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/commands/completion_script.h"

namespace tandem::cli {

// What a command line asks for.
struct Invocation {
  TargetFlags target;                    // of the controller
  std::function<int(Context&)> command;  // empty: `text` is all there is to say
  std::string text;                      // help (exit_code 0) or the line of a usage error (kUsage)
  int exit_code = 0;
};

Invocation ParseCommandLine(int argc, const char* const* argv);

// Every command with its options, tandem itself first: the same table that --help prints.
std::vector<CommandWords> AllCommandWords();

}  // namespace tandem::cli
