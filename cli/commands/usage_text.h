// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/completion_script.h"

namespace tandem::cli {

// What is wrong with a command line, as one line that names the way out. error: the parser's message.
// commands: all of them, tandem itself first.
std::string UsageText(std::string_view error, const std::vector<CommandWords>& commands, int argc,
                      const char* const* argv);

}  // namespace tandem::cli
