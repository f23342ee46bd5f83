// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tandem::cli {

// The words of a command line, as --help lists them.
struct OptionWords {
  std::vector<std::string> names;  // "-o", "--output"
  std::string description;
  bool takes_value = false;
  bool is_path = false;             // the value is a file or a folder
  std::vector<std::string> values;  // the value is one of these; empty: anything
};

struct CommandWords {
  std::vector<std::string> path;  // {"get", "jobs"}; empty: tandem itself
  std::string description;
  std::vector<OptionWords> options;
  bool takes_job = false;
  std::vector<std::string> values;    // of its argument; empty: anything
  std::vector<std::string> commands;  // that may follow, the last words of their paths
};

// A script that completes these words in bash, zsh or fish; jobs by their names, as the controller lists
// them. Empty for another shell.
std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace tandem::cli
