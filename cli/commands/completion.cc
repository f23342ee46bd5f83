// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/completion.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/commands/command_line.h"
#include "cli/commands/commands.h"

namespace tandem::cli {
namespace {

// In single quotes, for all three shells.
std::string Quoted(const std::string& text, const char* quote) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", quote}}), "'");
}
std::string Quoted(const std::string& text) { return Quoted(text, "'\\''"); }

std::string PathOf(const CommandWords& command) { return absl::StrJoin(command.path, " "); }

// The case of a shell that reads what stands before the cursor: command path and word. For bash and zsh,
// which differ in how they offer words.
struct Dialect {
  std::function<std::string(const std::vector<std::string>&)> offer_values;
  std::function<std::string(const CommandWords&)> offer_words;
  std::string offer_files;
  std::string offer_jobs;
};

std::string Body(const std::vector<CommandWords>& commands, const Dialect& dialect) {
  std::vector<std::string> paths;
  std::string values;
  std::string words;
  for (const CommandWords& command : commands) {
    const std::string path = PathOf(command);
    if (!path.empty()) {
      paths.push_back(Quoted(path));
    }
    for (const OptionWords& option : command.options) {
      if (!option.takes_value) {
        continue;
      }
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        // The options of tandem itself may stand anywhere.
        patterns.push_back(path.empty() ? "*" + Quoted(":" + name) : Quoted(absl::StrCat(path, ":", name)));
      }
      absl::StrAppend(&values, "    ", absl::StrJoin(patterns, "|"), ") ",
                      option.is_path           ? dialect.offer_files
                      : !option.values.empty() ? dialect.offer_values(option.values)
                                               : "",
                      option.is_path || !option.values.empty() ? "; " : "", "return ;;\n");
    }
    absl::StrAppend(&words, "    ", Quoted(path), ")\n", dialect.offer_words(command));
    if (command.takes_job) {
      absl::StrAppend(&words, "      [[ $current == -* ]] || { ", dialect.offer_jobs, "; } ;;\n");
    } else if (!command.values.empty()) {
      absl::StrAppend(&words, "      [[ $current == -* ]] || { ", dialect.offer_values(command.values),
                      "; } ;;\n");
    } else {
      absl::StrAppend(&words, "      ;;\n");
    }
  }
  return absl::StrCat(R"(  local command= word
  for word in "${before[@]}"; do
    case "${command:+$command }$word" in
      )",
                      absl::StrJoin(paths, "|"), R"() command="${command:+$command }$word" ;;
    esac
  done
  case "$command:$previous" in
)",
                      values, R"(  esac
  case "$command" in
)",
                      words, "  esac\n");
}

std::string BashScript(const std::vector<CommandWords>& commands) {
  const auto list = [](const std::vector<std::string>& words) {
    return absl::StrCat("COMPREPLY+=($(compgen -W ", Quoted(absl::StrJoin(words, " ")), " -- \"$current\"))");
  };
  const Dialect dialect = {
      .offer_values = list,
      .offer_words =
          [&list](const CommandWords& command) {
            std::vector<std::string> words = command.commands;
            for (const OptionWords& option : command.options) {
              words.insert(words.end(), option.names.begin(), option.names.end());
            }
            return absl::StrCat("      ", list(words), "\n");
          },
      .offer_files = "compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$current\")",
      .offer_jobs = "COMPREPLY+=($(compgen -W \"$(_tandem_jobs)\" -- \"$current\"))",
  };
  return absl::StrCat(R"(# Completion of tandem for bash: source <(tandem completion bash)
_tandem_jobs() { timeout 2 tandem get jobs -o name 2>/dev/null | head -200; }
_tandem() {
  # bash breaks words at = and :, so that --output=json is three.
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}"
  local -a before=("${COMP_WORDS[@]:1:COMP_CWORD - 1}")
  if [[ $current == = ]]; then current=; elif [[ $previous == = ]]; then previous="${COMP_WORDS[COMP_CWORD - 2]}"; fi
  COMPREPLY=()
)",
                      Body(commands, dialect), "}\ncomplete -F _tandem tandem\n");
}

std::string ZshScript(const std::vector<CommandWords>& commands) {
  const auto list = [](const std::vector<std::string>& words) {
    return absl::StrCat("compadd -- ",
                        absl::StrJoin(words, " ", [](std::string* out, const std::string& word) {
                          absl::StrAppend(out, Quoted(word));
                        }));
  };
  const Dialect dialect = {
      .offer_values = list,
      .offer_words =
          [&](const CommandWords& command) {
            std::string out;
            std::vector<std::string> described;
            for (const std::string& name : command.commands) {
              for (const CommandWords& each : commands) {
                std::vector<std::string> path = command.path;
                path.push_back(name);
                if (each.path == path) {
                  described.push_back(Quoted(absl::StrCat(name, ":", each.description)));
                }
              }
            }
            if (!described.empty()) {
              absl::StrAppend(&out, "      local -a next=(", absl::StrJoin(described, " "),
                              ")\n      _describe command next\n");
            }
            described.clear();
            for (const OptionWords& option : command.options) {
              for (const std::string& name : option.names) {
                described.push_back(Quoted(absl::StrCat(name, ":", option.description)));
              }
            }
            absl::StrAppend(&out, "      local -a flags=(", absl::StrJoin(described, " "),
                            ")\n      [[ $current == -* ]] && _describe option flags\n");
            return out;
          },
      .offer_files = "_files",
      .offer_jobs = "compadd -- ${(f)\"$(timeout 2 tandem get jobs -o name 2>/dev/null | head -200)\"}",
  };
  return absl::StrCat(R"(#compdef tandem
# Completion of tandem for zsh: source <(tandem completion zsh), after compinit
_tandem() {
  local current="${words[CURRENT]}" previous="${words[CURRENT-1]}"
  local -a before=("${(@)words[2,CURRENT-1]}")
  if [[ $current == --*=* ]]; then previous="${current%%=*}"; compset -P '*='; current="${current#*=}"; fi
)",
                      Body(commands, dialect), "}\ncompdef _tandem tandem\n");
}

std::string FishScript(const std::vector<CommandWords>& commands) {
  std::string out = R"(# Completion of tandem for fish: tandem completion fish | source
complete -c tandem -f
)";
  for (const CommandWords& command : commands) {
    // Where the command is the one that the line asks for.
    std::vector<std::string> seen;
    for (const std::string& word : command.path) {
      seen.push_back("__fish_seen_subcommand_from " + word);
    }
    if (!command.commands.empty() && !command.path.empty()) {
      seen.push_back("not __fish_seen_subcommand_from " + absl::StrJoin(command.commands, " "));
    }
    const std::string condition =
        command.path.empty() ? "" : absl::StrCat(" -n ", Quoted(absl::StrJoin(seen, "; and "), "\\'"));
    const std::string first = command.path.empty() ? " -n __fish_use_subcommand" : condition;
    for (const std::string& name : command.commands) {
      for (const CommandWords& each : commands) {
        std::vector<std::string> path = command.path;
        path.push_back(name);
        if (each.path == path) {
          absl::StrAppend(&out, "complete -c tandem", first, " -a ", name, " -d ",
                          Quoted(each.description, "\\'"), "\n");
        }
      }
    }
    for (const OptionWords& option : command.options) {
      absl::StrAppend(&out, "complete -c tandem", condition);
      for (const std::string& name : option.names) {
        absl::StrAppend(&out, name.size() == 2 ? " -s " + name.substr(1) : " -l " + name.substr(2));
      }
      absl::StrAppend(&out, option.is_path ? " -r -F" : option.takes_value ? " -x" : "");
      if (!option.values.empty()) {
        absl::StrAppend(&out, " -a ", Quoted(absl::StrJoin(option.values, " "), "\\'"));
      }
      absl::StrAppend(&out, " -d ", Quoted(option.description, "\\'"), "\n");
    }
    if (command.takes_job) {
      absl::StrAppend(&out, "complete -c tandem", condition,
                      " -a '(timeout 2 tandem get jobs -o name 2>/dev/null | head -200)'\n");
    } else if (!command.values.empty()) {
      absl::StrAppend(&out, "complete -c tandem", condition, " -a ",
                      Quoted(absl::StrJoin(command.values, " "), "\\'"), "\n");
    }
  }
  return out;
}

}  // namespace

std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands) {
  return shell == "bash"   ? BashScript(commands)
         : shell == "zsh"  ? ZshScript(commands)
         : shell == "fish" ? FishScript(commands)
                           : "";
}

Outcome Completion(Context& context, const CompletionOptions& options) {
  context.console.Write(Stream::kOut, CompletionScript(options.shell, AllCommandWords()));
  return kOk;
}

}  // namespace tandem::cli
