// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/commands/command_line.h"
#include "cli/terminal/display_text.h"

namespace tandem::cli {
namespace {

template <typename Range>
bool Contains(const Range& range, const std::string& word) {
  return std::find(range.begin(), range.end(), word) != range.end();
}

// What stands before and behind the command: the first word that is neither an option of tandem itself nor
// the value of one.
struct LineWords {
  std::string command;
  std::string unknown_option;  // before it
  std::string argument;        // right behind it
};

LineWords WordsOf(const CommandWords& tandem, int argc, const char* const* argv) {
  LineWords words;
  for (int i = 1; i < argc && words.command.empty(); ++i) {
    const std::string word = argv[i];
    const auto option = std::find_if(
        tandem.options.begin(), tandem.options.end(),
        [&](const OptionWords& known) { return Contains(known.names, word.substr(0, word.find('='))); });
    if (word[0] != '-') {
      words.command = word;
      words.argument = i + 1 < argc ? argv[i + 1] : "";
    } else if (option == tandem.options.end()) {
      words.unknown_option = words.unknown_option.empty() ? word : words.unknown_option;
    } else if (option->takes_value && word.find('=') == std::string::npos) {
      ++i;
    }
  }
  return words;
}

// What may follow a command that needs another word.
const char* FollowersOf(const std::string& command) {
  return command == "context"      ? "context list, context use, context set, context remove"
         : command == "checkpoint" ? "checkpoint now JOB"
         : command == "certs"      ? "certs init, certs issue, certs show"
                                   : "get jobs, get workers";
}

}  // namespace

std::string UsageText(std::string_view error, const std::vector<CommandWords>& commands, int argc,
                      const char* const* argv) {
  const LineWords words = WordsOf(commands[0], argc, argv);
  const std::string& command = words.command;
  if (!Contains(commands[0].commands, command)) {
    return absl::StrCat(
        !command.empty() ? absl::StrCat("there is no command \"", Escape(command), "\"")
        : !words.unknown_option.empty()
            ? absl::StrCat("there is no option \"", Escape(words.unknown_option), "\" before a command")
            : "no command is given",
        "; commands: ", absl::StrJoin(commands[0].commands, " "), "; see `tandem --help`");
  }
  const std::string text(error);
  std::string what;
  if (absl::StrContains(text, "subcommand is required")) {
    what = absl::StrCat("its second word is missing or unknown; allowed: ", FollowersOf(command));
  } else if (absl::StrContains(text, "--file is required")) {
    const bool named = !words.argument.empty() && words.argument[0] != '-';
    what = absl::StrCat("-f FILE is missing",
                        named ? absl::StrCat("; did you mean -f ", Escape(words.argument), "?") : "");
  } else {
    what = Escape(absl::StrReplaceAll(text, {{"\n", " "}}));
  }
  return absl::StrCat(command, ": ", what, "; see `tandem ", command, " --help`");
}

}  // namespace tandem::cli
