// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "cli/commands/commands.h"

namespace tandem::cli {

// A command line, parsed.
struct Invocation {
  TargetFlags target;                    // of the controller
  std::function<int(Context&)> command;  // empty: `text` is all there is to say
  std::string text;                      // help (exit_code 0) or the line of a usage error (kUsage)
  ExitCode exit_code = kOk;
};

// `tandem __complete WORD...`, which the scripts of `tandem completion` ask, is answered in `text`: what may
// stand in place of the last word, a line each, behind a tab its description; or :files or :jobs, if the
// shell is to list those.
Invocation ParseCommandLine(int argc, const char* const* argv);

}  // namespace tandem::cli
