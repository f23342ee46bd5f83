#!/usr/bin/env bash
# The whole of Tandem on this machine: installs what is missing, builds, and trains a small Llama on the C++
# standard library's headers, with a controller and two workers of one rank each (ZeRO-3).
#
#   scripts/demo.sh [--torch DIR]      (--torch: a LibTorch of your own, see scripts/setup.sh)
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  -h|--help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac

scripts/build.sh "$@" --target tandem tandem-controller tandem-worker tandem-trainer

# The newest headers that a compiler brought: /usr/include/c++/12 on Debian 12.
headers=$(find /usr/include/c++ -mindepth 1 -maxdepth 1 -type d | sort -V | tail -n 1)
[ -n "$headers" ] || { echo "demo: no C++ headers below /usr/include/c++; install g++" >&2; exit 1; }
run=runs/demo-$(date +%Y%m%d-%H%M%S)
mkdir -p "$run"
sed -e "s#/usr/include/c++/12#$headers#" -e "s#runs/headers#$run/checkpoints#" examples/headers.yaml >"$run/job.yaml"
echo "demo: tandem run -f $run/job.yaml --workers 2 --slots 1"
exec build/release/bin/tandem run -f "$run/job.yaml" --workers 2 --slots 1
