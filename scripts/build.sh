#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, configures and builds: the common part of demo.sh and test.sh.
#
#   scripts/build.sh [--tests] [--cuda] [--torch DIR] [--target T ...]
#
#   --tests    the tests and bench/ as well
#   --cuda     must have the CUDA code: installs a CUDA 13 compiler where there is none
#
# Binaries are in build/release/bin.
set -euo pipefail
cd "$(dirname "$0")/.."

setup=() configure=() targets=() tests=OFF
while [ $# -gt 0 ]; do
  case $1 in
    --tests) setup+=(--tests); tests=ON ;;
    --cuda) setup+=(--cuda); configure+=(-DTANDEM_CUDA=ON) ;;
    --torch) [ $# -ge 2 ] || { echo "build: --torch needs a folder" >&2; exit 2; }
             setup+=(--torch "$2"); configure+=("-DTANDEM_TORCH_DIR=$2"); shift ;;
    --target) shift; targets+=(--target "$@"); break ;;
    -h|--help) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "build: unknown argument '$1'; see scripts/build.sh --help" >&2; exit 2 ;;
  esac
  shift
done

scripts/setup.sh "${setup[@]}"
started=$SECONDS
mkdir -p build
cmake --preset release "-DTANDEM_TESTS=$tests" "${configure[@]}" >build/configure.log 2>&1 || { tail -n 30 build/configure.log >&2; exit 1; }
# One job a core, and no more than memory allows: a batch of files takes 1 to 2 GiB (2.6 at most, in tests).
jobs=$(nproc)
by_memory=$(awk '/MemAvailable/ {print int($2 / 2097152)}' /proc/meminfo)
[ "$jobs" -le "$by_memory" ] || jobs=$((by_memory > 0 ? by_memory : 1))
cmake --build build/release --parallel "$jobs" "${targets[@]}"
echo "build: done in $((SECONDS - started)) s"
