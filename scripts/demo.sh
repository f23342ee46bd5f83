#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole of Tandem on this machine: installs what is missing, builds, and trains a small Llama on the C++
# standard library's headers: on two ranks of one worker on GPUs where it finds two, on one rank where it finds one,
# else with two workers of one rank each on the CPU (ZeRO-3). With --moe the model has experts, which two ranks share:
# on two GPUs, else on the CPU.
#
#   scripts/demo.sh [--moe] [--torch DIR]      (--torch: a LibTorch of your own, see scripts/setup.sh)
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  -h|--help) sed -n '3,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
example=headers
if [ "${1:-}" = --moe ]; then example="headers-moe"; shift; fi

gpus=0
if command -v nvidia-smi >/dev/null; then
  gpus=$({ nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU' || true)
fi
if [ "$example" = headers-moe ] && [ "$gpus" -lt 2 ]; then gpus=0; fi
cuda=() targets=(tandem tandem-controller tandem-worker tandem-trainer)
if [ "$gpus" -gt 0 ]; then cuda=(--cuda) targets+=(tandem-trainer-cuda); fi
scripts/build.sh "${cuda[@]}" "$@" --target "${targets[@]}"

# The newest headers that a compiler brought: /usr/include/c++/12 on Debian 12.
headers=$(find /usr/include/c++ -mindepth 1 -maxdepth 1 -type d | sort -V | tail -n 1)
[ -n "$headers" ] || { echo "demo: no C++ headers below /usr/include/c++; install g++" >&2; exit 1; }
run=runs/demo-$(date +%Y%m%d-%H%M%S)
mkdir -p "$run"
sed -e "s#/usr/include/c++/12#$headers#" -e "s#runs/$example#$run/checkpoints#" "examples/$example.yaml" >"$run/job.yaml"
shape=(--workers 2 --slots 1)
if [ "$gpus" -gt 0 ]; then
  shape=(--workers 1)
  [ "$gpus" -gt 1 ] || sed -i 's/^  ranks: 2$/  ranks: 1/' "$run/job.yaml"
fi
echo "demo: tandem run -f $run/job.yaml ${shape[*]}"
exec build/release/bin/tandem run -f "$run/job.yaml" "${shape[@]}"
