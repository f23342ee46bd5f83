#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks what the compiler does not: formatting, shell scripts, licence lines, lock annotations and clang-tidy.
#
#   scripts/lint.sh [--full]      (after scripts/test.sh: it reads build/release/compile_commands.json)
#
#   --full    clang-tidy also of what has passed on this machine and has not changed, and each torch-free file alone
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  ""|--full) ;;
  *) sed -n '3,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
readonly format=$HOME/.cache/tandem/lint/bin/clang-format tidy=$HOME/.cache/tandem/lint/bin/clang-tidy
for tool in shellcheck "$format" "$tidy"; do
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

# Only locks that clang's analysis knows are allowed. The one exception is what SteadyCondition is built on.
unknown=$(git grep -nE 'std::((recursive_|shared_)?(timed_)?mutex|condition_variable(_any)?|lock_guard|unique_lock|scoped_lock|shared_lock)\b' \
  -- '*.cc' '*.h' '*.cu' '*.cuh' ':!tests/' | grep -v '^platform/steady_condition.h:.*std::condition_variable_any' | cut -d: -f1 | sort -u | paste -sd' ' || true)
[ -z "$unknown" ] || { echo "lint: use absl::Mutex, with absl::CondVar or platform::SteadyCondition, instead of std's locks in: $unknown" >&2; exit 1; }

scripts/tidy.py "$tidy" "$@"
