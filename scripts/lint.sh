#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks what the compiler does not: formatting, shell scripts, licence lines, lock annotations and clang-tidy.
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

# Every lock is one that clang's analysis knows. SteadyCondition is built on the one exception.
unknown=$(git grep -nE 'std::((recursive_|shared_)?(timed_)?mutex|condition_variable(_any)?|lock_guard|unique_lock|scoped_lock|shared_lock)\b' \
  -- '*.cc' '*.h' '*.cu' '*.cuh' ':!tests/' | grep -v '^platform/steady_condition.h:.*std::condition_variable_any' | cut -d: -f1 | sort -u | paste -sd' ' || true)
[ -z "$unknown" ] || { echo "lint: use absl::Mutex, with absl::CondVar or platform::SteadyCondition, instead of std's locks in: $unknown" >&2; exit 1; }

# The torch-free half through clang: each file alone, as the batches of the release build do not compile them
# (-Wthread-safety holds the code to its ABSL_GUARDED_BY); of the rest, where LibTorch's headers take long and
# warn, the files with locks that this build has, and for their locks alone. Then clang-tidy, which spends its
# time on headers, over the batches of the torch-free half.
readonly torch_free="platform link tls config jobspec parallel schedules plan controller worker cli"
commands=$(python3 - "$torch_free" <<'PY'
import json
import pathlib
import re
import shlex
import subprocess
import sys

folders = sys.argv[1].split()
flags = {folder: {} for folder in folders}
root = pathlib.Path.cwd()


# The file's own header counts: it declares what the file locks.
def has_lock(path):
    header = path.with_suffix(".h")
    return any("absl::Mutex" in file.read_text() for file in (path, header) if file.exists())


# What an entry compiles: the sources of its batch, or one file.
def sources(entry):
    path = pathlib.Path(entry["file"])
    batch = re.findall(r'^#include "(.*)"$', path.read_text(), re.M) if path.suffix == ".cxx" else []
    for source in map(pathlib.Path, batch or [path]):
        if source.is_relative_to(root) and source.is_file():
            yield source.relative_to(root)


def flags_of(words):
    for before, word in zip(words, words[1:]):
        if word.startswith(("-I", "-D", "-std")):
            yield word
        elif before in ("-isystem", "-idirafter"):
            yield before + word


for entry in json.load(open("build/release/compile_commands.json")):
    words = shlex.split(entry["command"])
    folder = pathlib.Path(words[words.index("-o") + 1]).parts[0]
    if folder not in (*folders, "tests"):
        for source in filter(has_lock, sources(entry)):
            print("locks", shlex.join([*flags_of(words), str(source)]))
    if folder not in folders:
        continue
    flags[folder].update(dict.fromkeys(flags_of(words)))
    if "/gen/" not in entry["file"]:
        print("tidy", shlex.join([entry["file"], "--", *flags[folder]]))
for file in subprocess.run(["git", "ls-files", *(f"{folder}/*.cc" for folder in folders)], check=True, text=True, capture_output=True).stdout.split():
    print("alone", shlex.join([*flags[file.split("/")[0]], file]))
PY
)
alone=$(sed -n 's/^alone //p' <<<"$commands")
locks=$(sed -n 's/^locks //p' <<<"$commands")
tidy=$(sed -n 's/^tidy //p' <<<"$commands")
[[ $alone && $locks && $tidy ]] || { echo "lint: build/release/compile_commands.json names no file; configure again" >&2; exit 1; }
xargs -d '\n' -P "$(nproc)" -I{} sh -c 'clang++-14 -fsyntax-only -Wthread-safety -Werror {}' <<<"$alone"
xargs -d '\n' -P "$(nproc)" -I{} sh -c 'clang++-14 -fsyntax-only -Wno-everything -Wthread-safety -Werror=thread-safety {}' <<<"$locks"
echo "lint: $(wc -l <<<"$alone"$'\n'"$locks") files pass clang's thread-safety analysis"
filter="^$PWD/(${torch_free// /|})/"
xargs -d '\n' -P "$(nproc)" -I{} sh -c "clang-tidy-14 --quiet --header-filter='$filter' {} 2>&1 | { ! grep -v '^[0-9]* warnings* generated'; }" <<<"$tidy"
echo "lint: $(wc -l <<<"$tidy") batches pass clang-tidy"
