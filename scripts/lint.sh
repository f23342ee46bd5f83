#!/usr/bin/env bash
# What a compiler run does not say: formatting, shell scripts, and lock annotations, which only clang checks.
#
#   scripts/lint.sh          (after scripts/test.sh: it reads build/release/compile_commands.json)
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  "") ;;
  *) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
for tool in clang++-14 clang-format shellcheck; do
  command -v $tool >/dev/null || { echo "lint: no $tool; install it: apt-get install clang-14 clang-format shellcheck" >&2; exit 1; }
done
[ -e build/release/compile_commands.json ] || { echo "lint: no build/release yet; run scripts/build.sh --tests" >&2; exit 1; }

git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | grep -v '/planted/' | xargs clang-format --dry-run -Werror
git ls-files '*.sh' .ci/run | xargs shellcheck

# Torch-free files with locks once more through clang: -Wthread-safety holds the code to its ABSL_GUARDED_BY.
mapfile -t commands < <(python3 - <<'PY'
import json
import pathlib
import re
import shlex
folders = ("platform", "link", "jobspec", "parallel", "schedules", "plan", "controller", "worker", "cli")
root = str(pathlib.Path.cwd())
locks = re.compile(r"MutexLock|GUARDED_BY|EXCLUSIVE_LOCKS")
for entry in json.load(open("build/release/compile_commands.json")):
    relative = entry["file"].removeprefix(root + "/")
    texts = [path.read_text() for path in (pathlib.Path(relative), pathlib.Path(relative).with_suffix(".h")) if path.exists()]
    if relative.split("/")[0] in folders and relative.endswith(".cc") and any(map(locks.search, texts)):
        words = shlex.split(entry["command"])
        flags = [w for i, w in enumerate(words) if w.startswith(("-I", "-D", "-std")) or w == "-isystem" or words[i - 1] == "-isystem"]
        print(shlex.join([*flags, entry["file"]]))
PY
)
printf '%s\n' "${commands[@]}" |
  xargs -P "$(nproc)" -I{} sh -c 'clang++-14 -fsyntax-only -Wthread-safety -Werror {}'
echo "lint: ${#commands[@]} files with locks pass clang's thread-safety analysis"
