#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything, and runs the tests.
#
#   scripts/test.sh [--full] [--no-build] [--torch DIR] [CTEST-ARGUMENT ...]
#
#   --full       also what is otherwise sampled by a seed: whole matrices, every fault, every installation
#   --no-build   runs what scripts/build.sh --tests has built
#   any other    goes to ctest: scripts/test.sh -R schedules
set -euo pipefail
cd "$(dirname "$0")/.."

build=(--tests) ctest=()
full=0 builds=1
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=1 ;;
    --no-build) builds=0 ;;
    --torch) [ $# -ge 2 ] || { echo "test: --torch needs a folder" >&2; exit 2; }; build+=(--torch "$2"); shift ;;
    -h|--help) sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) ctest+=("$1") ;;
  esac
  shift
done
[ $full = 0 ] || ctest+=(--build-config Full)  # tests with CONFIGURATIONS Full, beside all others

[ $builds = 0 ] || scripts/build.sh "${build[@]}"
started=$SECONDS
# One program more than processors: programs that run whole jobs wait more than they compute.
ctest --test-dir build/release --output-on-failure --timeout 900 --parallel "$(($(nproc) + 1))" "${ctest[@]}" || {
  failed=$?
  # The summary of a program is far above the summary of all programs.
  echo "test: what failed in these programs:" >&2
  grep -aE -A 6 ': Failure$|^(FAIL|ERROR): |^FAILED |^E  |^\[  FAILED  \] .*[^)]$' build/release/Testing/Temporary/LastTest.log |
    cut -c 1-300 | tail -n 100 >&2
  exit "$failed"
}
echo "test: done in $((SECONDS - started)) s"
