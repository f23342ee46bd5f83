// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

namespace tandem::cli {
namespace {

// Each script calls `tandem __complete` (command_line.h) to learn what may stand at the cursor.
constexpr const char* kBashScript = R"sh(# Completion of tandem for bash: source <(tandem completion bash)
_tandem() {
  # bash breaks words at = and :, so that --output=json is three.
  local current="${COMP_WORDS[COMP_CWORD]#=}" offered
  offered="$(tandem __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)"
  case "$offered" in
    :files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    :jobs)
      local job  # a name is data: compgen -W would expand it
      COMPREPLY=()
      while read -r job; do
        [[ $job != "$current"* ]] || COMPREPLY+=("$job")
      done < <(timeout 2 tandem get jobs -o name 2>/dev/null | head -200)
      ;;
    *) COMPREPLY=($(cut -f1 <<< "$offered")) ;;
  esac
}
complete -F _tandem tandem
)sh";

constexpr const char* kZshScript = R"sh(#compdef tandem
# Completion of tandem for zsh: source <(tandem completion zsh), after compinit
_tandem() {
  local offered="$(tandem __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"
  local -a lines=(${(f)${offered//$'\t'/:}})
  case "$offered" in
    :files) compset -P '--*='; _files ;;
    :jobs) compadd -- ${(f)"$(timeout 2 tandem get jobs -o name 2>/dev/null | head -200)"} ;;
    ?*) _describe tandem lines ;;
  esac
}
compdef _tandem tandem
)sh";

constexpr const char* kFishScript = R"sh(# Completion of tandem for fish: tandem completion fish | source
function __tandem_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l offered (tandem __complete $words[2..] "$current" 2>/dev/null)
    switch "$offered"
        case :files
            set -l option (string match -r '^--[^=]*=' -- "$current")
            for path in (__fish_complete_path (string replace -- "$option" '' "$current"))
                echo "$option$path"
            end
        case :jobs
            timeout 2 tandem get jobs -o name 2>/dev/null | head -200
        case '*'
            string join \n -- $offered
    end
end
complete -c tandem -f -a '(__tandem_complete)'
)sh";

}  // namespace

Outcome Completion(Context& context, const CompletionOptions& options) {
  context.Print(options.shell == "bash" ? kBashScript : options.shell == "zsh" ? kZshScript : kFishScript);
  return kOk;
}

}  // namespace tandem::cli
