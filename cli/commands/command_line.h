// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/commands/completion.h"

namespace tandem::cli {

// What a command line asks for.
struct Invocation {
  TargetFlags target;                    // of the controller
  std::function<int(Context&)> command;  // empty: `text` is all there is to say
  std::string text;                      // help (exit_code 0) or the line of a usage error (kUsage)
  ExitCode exit_code = kOk;
};

Invocation ParseCommandLine(int argc, const char* const* argv);

// Every command with its options, tandem itself first: the same table that --help prints.
std::vector<CommandWords> AllCommandWords();

// What is wrong with a command line, as one line that names the way out. error: the parser's message.
// commands: all of them, tandem itself first.
std::string UsageText(std::string_view error, const std::vector<CommandWords>& commands, int argc,
                      const char* const* argv);

}  // namespace tandem::cli
