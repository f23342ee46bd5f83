#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a compiler run does not say: formatting, shell scripts, licence lines, lock annotations and clang-tidy.
#
#   scripts/lint.sh          (after scripts/test.sh: it reads build/release/compile_commands.json)
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  "") ;;
  *) sed -n '3,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
readonly format=$HOME/.cache/tandem/lint/bin/clang-format
for tool in clang++-14 clang-tidy-14 shellcheck "$format"; do
  command -v "$tool" >/dev/null || { echo "lint: no $tool; scripts/setup.sh --tests installs it" >&2; exit 1; }
done
[ -e build/release/compile_commands.json ] || { echo "lint: no build/release yet; run scripts/build.sh --tests" >&2; exit 1; }

git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | grep -v '/planted/' |
  xargs "$format" --style='{BasedOnStyle: InheritParentConfig, InsertBraces: true}' --dry-run -Werror
git ls-files '*.sh' '*.sbatch' .ci/run | xargs shellcheck

# Every source says under which licence it is.
unlicensed=$(git ls-files '*.cc' '*.h' '*.cu' '*.cuh' '*.proto' '*.py' '*.sh' '*.sbatch' '*.cmake' '*CMakeLists.txt' .ci/run |
  grep -v '/planted/' | xargs grep -L '^[/#]* SPDX-License-Identifier: Apache-2.0$' || true)
[ -z "$unlicensed" ] || { echo "lint: no SPDX-License-Identifier line in: $unlicensed" >&2; exit 1; }

# The torch-free half through clang: each file alone, as the batches of the release build do not compile them
# (-Wthread-safety holds the code to its ABSL_GUARDED_BY); then clang-tidy, which spends its time on headers,
# over the batches.
readonly torch_free="platform link tls config jobspec parallel schedules plan controller worker cli"
commands=$(python3 - "$torch_free" <<'PY'
import json
import pathlib
import shlex
import subprocess
import sys

folders = sys.argv[1].split()
flags = {folder: {} for folder in folders}
for entry in json.load(open("build/release/compile_commands.json")):
    words = shlex.split(entry["command"])
    folder = pathlib.Path(words[words.index("-o") + 1]).parts[0]
    if folder not in folders:
        continue
    for i, word in enumerate(words):
        if word.startswith(("-I", "-D", "-std")) or words[i - 1] == "-isystem":
            flags[folder]["-isystem" + word if words[i - 1] == "-isystem" else word] = None
    if "/gen/" not in entry["file"]:
        print("tidy", shlex.join([entry["file"], "--", *flags[folder]]))
for file in subprocess.run(["git", "ls-files", *(f"{folder}/*.cc" for folder in folders)], check=True, text=True, capture_output=True).stdout.split():
    print("alone", shlex.join([*flags[file.split("/")[0]], file]))
PY
)
alone=$(sed -n 's/^alone //p' <<<"$commands")
tidy=$(sed -n 's/^tidy //p' <<<"$commands")
[[ $alone && $tidy ]] || { echo "lint: build/release/compile_commands.json names no file; configure again" >&2; exit 1; }
xargs -d '\n' -P "$(nproc)" -I{} sh -c 'clang++-14 -fsyntax-only -Wthread-safety -Werror {}' <<<"$alone"
echo "lint: $(wc -l <<<"$alone") files pass clang's thread-safety analysis"
filter="^$PWD/(${torch_free// /|})/"
xargs -d '\n' -P "$(nproc)" -I{} sh -c "clang-tidy-14 --quiet --header-filter='$filter' {} 2>&1 | { ! grep -v '^[0-9]* warnings* generated'; }" <<<"$tidy"
echo "lint: $(wc -l <<<"$tidy") batches pass clang-tidy"
