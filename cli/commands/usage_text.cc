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

// What a line says: its command, one word or two, and what stands before and behind its first word, which is
// the first that is neither an option of tandem itself nor the value of one.
struct LineWords {
  std::vector<std::string> command;
  std::string unknown_option;  // before it
  std::string argument;        // right behind it
};

LineWords WordsOf(const std::vector<CommandWords>& commands, int argc, const char* const* argv) {
  LineWords words;
  for (int i = 1; i < argc && words.command.size() < 2; ++i) {
    const std::string word = argv[i];
    const auto option = std::find_if(
        commands[0].options.begin(), commands[0].options.end(),
        [&](const OptionWords& known) { return Contains(known.names, word.substr(0, word.find('='))); });
    if (word.empty()) {
      continue;
    }
    if (word[0] != '-' && words.command.empty()) {
      words.command = {word};
      words.argument = i + 1 < argc ? argv[i + 1] : "";
    } else if (word[0] != '-') {
      const std::vector<std::string> both = {words.command[0], word};
      if (std::any_of(commands.begin(), commands.end(),
                      [&](const CommandWords& known) { return known.path == both; })) {
        words.command = both;
      }
      break;
    } else if (option == commands[0].options.end()) {
      if (words.command.empty() && words.unknown_option.empty()) {
        words.unknown_option = word;
      }
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
  const LineWords words = WordsOf(commands, argc, argv);
  const std::string first = words.command.empty() ? "" : words.command[0];
  if (!Contains(commands[0].commands, first)) {
    return absl::StrCat(
        !words.unknown_option.empty()
            ? absl::StrCat("there is no option \"", Escape(words.unknown_option), "\" before a command")
        : !first.empty() ? absl::StrCat("there is no command \"", Escape(first), "\"")
                         : "no command is given",
        "; commands: ", absl::StrJoin(commands[0].commands, " "), "; see `tandem --help`");
  }
  const std::string text(error);
  std::string what;
  if (absl::StrContains(text, "subcommand is required")) {
    what = absl::StrCat("its second word is missing or unknown; allowed: ", FollowersOf(first));
  } else if (absl::StrContains(text, "--file is required")) {
    const bool named = !words.argument.empty() && words.argument[0] != '-';
    what = absl::StrCat("-f FILE is missing",
                        named ? absl::StrCat("; did you mean -f ", Escape(words.argument), "?") : "");
  } else {
    what = Escape(absl::StrReplaceAll(text, {{"\n", " "}}));
  }
  const std::string command = absl::StrJoin(words.command, " ");
  return absl::StrCat(command, ": ", what, "; see `tandem ", command, " --help`");
}

}  // namespace tandem::cli
