// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/command_line.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/commands/command_tree.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "config/flags.h"

namespace tandem::cli {
namespace {

// Returns the commands that may follow, except hidden ones.
std::vector<const CLI::App*> CommandsBelow(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::string NamesOf(const std::vector<const CLI::App*>& commands, const std::string& before,
                    const char* separator) {
  return absl::StrJoin(commands, separator, [&](std::string* out, const CLI::App* command) {
    absl::StrAppend(out, before, command->get_name());
  });
}

// Finds an option of `command` or of a command above it, whose options may follow too.
const CLI::Option* OptionNamed(const CLI::App* command, const std::string& name) {
  const CLI::Option* option = nullptr;
  for (; command != nullptr && option == nullptr; command = command->get_parent()) {
    option = command->get_option_no_throw(name);
  }
  return option;
}

// What the words of a command line mean.
struct LineWords {
  const CLI::App* command = nullptr;        // the last known command; at first tandem itself
  const CLI::Option* unfinished = nullptr;  // its name is the last word, so a value follows
  std::string first;                        // first word that is neither an option nor its value
  std::string unknown_option;               // before `first`
  std::string argument;                     // word after `first`
};

LineWords ReadWords(const CLI::App& tandem, const std::vector<std::string>& words) {
  LineWords line{.command = &tandem};
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.empty() || line.unfinished != nullptr) {
      line.unfinished = nullptr;
    } else if (word[0] == '-') {
      const CLI::Option* option = OptionNamed(line.command, word.substr(0, word.find('=')));
      if (option == nullptr && line.first.empty() && line.unknown_option.empty()) {
        line.unknown_option = word;
      } else if (option != nullptr && option->get_items_expected_max() > 0 && !absl::StrContains(word, '=')) {
        line.unfinished = option;
      }
    } else {
      const bool may_be_command = line.first.empty() || line.command != &tandem;
      for (const CLI::App* below : CommandsBelow(*line.command)) {
        if (may_be_command && below->get_name() == word) {
          line.command = below;
          break;
        }
      }
      if (line.first.empty()) {
        line.first = word;
        line.argument = i + 1 < words.size() ? words[i + 1] : "";
      }
    }
  }
  return line;
}

// Returns one line about what is wrong with a command line and how to mend it. error: the parser's message.
std::string UsageText(const std::string& error, const CLI::App& tandem,
                      const std::vector<std::string>& words) {
  const LineWords line = ReadWords(tandem, words);
  if (line.command == &tandem) {
    return absl::StrCat(
        !line.unknown_option.empty()
            ? absl::StrCat("there is no option \"", Escape(line.unknown_option), "\" before a command")
        : !line.first.empty() ? absl::StrCat("there is no command \"", Escape(line.first), "\"")
                              : "no command is given",
        "; commands: ", NamesOf(CommandsBelow(tandem), "", " "), "; see `tandem --help`");
  }
  const CLI::App* family = line.command->get_parent();
  const std::string command = (family == &tandem ? "" : family->get_name() + " ") + line.command->get_name();
  std::string what;
  if (absl::StrContains(error, "subcommand is required")) {
    what = absl::StrCat("its second word is missing or unknown; allowed: ",
                        NamesOf(CommandsBelow(*line.command), command + " ", ", "));
  } else if (absl::StrContains(error, "--file is required")) {
    const bool named = !line.argument.empty() && line.argument[0] != '-';
    what = absl::StrCat("-f FILE is missing",
                        named ? absl::StrCat("; did you mean -f ", Escape(line.argument), "?") : "");
  } else {
    what = Escape(absl::StrReplaceAll(error, {{"\n", " "}}));
  }
  return absl::StrCat(command, ": ", what, "; see `tandem ", command, " --help`");
}

// Undoes what bash does: it makes three words of --output=json and of 10.0.0.1:7471. The pieces become one
// word again; but an option and its value stay two words, without the =.
std::vector<std::string> JoinPieces(const std::vector<std::string>& pieces) {
  std::vector<std::string> words;
  bool goes_on = false;    // the next piece belongs to the last word
  bool has_value = false;  // the last word is an option whose = was read
  for (const std::string& piece : pieces) {
    const bool breaks =
        !words.empty() && !piece.empty() && piece.find_first_not_of("=:") == std::string::npos;
    has_value = breaks && !goes_on && piece == "=" && absl::StartsWith(words.back(), "-");
    if (!has_value && (breaks || (goes_on && !piece.empty()))) {
      words.back() += piece;
    } else if (!has_value) {
      words.push_back(piece);
    }
    goes_on = breaks && !has_value;
  }
  if (has_value) {
    words.emplace_back();
  }
  return words;
}

// Returns the lines of `tandem __complete`: what may replace the last of `pieces`.
std::string Completions(const CommandTree& tree, const std::vector<std::string>& pieces) {
  std::vector<std::string> words = JoinPieces(pieces);
  std::string current = words.empty() ? "" : words.back();
  if (!words.empty()) {
    words.pop_back();
  }
  const LineWords line = ReadWords(tree.app(), words);
  const CLI::Option* option = line.unfinished;
  std::string before;  // "--option=", if it is in one word with the value
  if (const size_t equals = current.find('='); option == nullptr && equals != std::string::npos) {
    option = OptionNamed(line.command, current.substr(0, equals));
    if (option != nullptr) {
      before = current.substr(0, equals + 1);
      current.erase(0, equals + 1);
    }
  }

  std::vector<std::pair<std::string, std::string>> offered;  // with their descriptions
  if (option != nullptr) {
    const std::string type = option->get_type_name();
    if (absl::StrContains(type, "FILE") || absl::StrContains(type, "FOLDER")) {
      return ":files\n";
    }
    for (const std::string& value : tree.ValuesOf(option)) {
      offered.emplace_back(value, "");
    }
  } else if (line.command->get_prefix_command()) {  // another program reads these words
    return ":files\n";
  } else if (absl::StartsWith(current, "-")) {
    for (const CLI::Option* known :
         line.command->get_options([](const CLI::Option* each) { return !each->get_group().empty(); })) {
      for (const std::string& name : known->get_snames()) {
        offered.emplace_back("-" + name, known->get_description());
      }
      for (const std::string& name : known->get_lnames()) {
        offered.emplace_back("--" + name, known->get_description());
      }
    }
  } else {
    for (const CLI::App* below : CommandsBelow(*line.command)) {
      offered.emplace_back(below->get_name(), below->get_description());
    }
    for (const CLI::Option* argument :
         line.command->get_options([](const CLI::Option* known) { return known->get_positional(); })) {
      if (argument->get_name() == "JOB") {
        return ":jobs\n";
      }
      for (const std::string& value : tree.ValuesOf(argument)) {
        offered.emplace_back(value, "");
      }
    }
  }
  std::string lines;
  for (const auto& [word, description] : offered) {
    if (absl::StartsWith(word, current)) {
      absl::StrAppend(&lines, before, word, description.empty() ? "" : "\t", description, "\n");
    }
  }
  return lines;
}

}  // namespace

Invocation ParseCommandLine(int argc, const char* const* argv) {
  Invocation invocation;
  CommandTree tree(invocation);
  CLI::App& tandem = tree.app();
  std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (!words.empty() && words[0] == "__complete") {
    words.erase(words.begin());
    invocation.text = Completions(tree, words);
    return invocation;
  }
  try {
    tandem.parse(argc, argv);
    if (const std::vector<std::string> empty = config::EmptyValues(tandem); !empty.empty()) {
      throw CLI::ValidationError(empty.front());
    }
  } catch (const CLI::CallForHelp&) {
    CLI::App* deepest = &tandem;
    std::string before;  // the words before it, for "Usage: tandem get jobs"
    while (!deepest->get_subcommands().empty()) {
      before += (before.empty() ? "" : " ") + deepest->get_name();
      deepest = deepest->get_subcommands()[0];
    }
    invocation.command = nullptr;
    invocation.text = deepest->help(before);
  } catch (const CLI::CallForVersion& version) {
    invocation.command = nullptr;
    invocation.text = absl::StrCat(version.what(), "\n");
  } catch (const CLI::ParseError& error) {
    invocation.command = nullptr;
    invocation.text = UsageText(error.what(), tandem, words);
    invocation.exit_code = kUsage;
  }
  return invocation;
}

}  // namespace tandem::cli
