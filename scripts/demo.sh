#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all of Tandem on this machine: installs what is missing, builds, and trains a small Llama on the C++ standard
# library's headers. It uses two ranks of one worker if it finds two GPUs, one rank if it finds one, otherwise two
# workers of one rank each on the CPU (ZeRO-3). With --moe the model has experts, which two ranks share: on two GPUs,
# otherwise on the CPU. With --hybrid most of its layers are Mamba-2 mixers.
#
# With --real it shows every step for a model of your own, on the CPU: it makes a tokenizer and a small Hugging Face model,
# prepares the text, starts from the model, trains, exports, and lets transformers load the result.
#
#   scripts/demo.sh [--moe | --hybrid | --real] [--torch DIR]      (--torch: a LibTorch of your own, see scripts/setup.sh)
set -euo pipefail
cd "$(dirname "$0")/.."
example=headers torch=()
while [ $# -gt 0 ]; do
  case $1 in
    --moe) example="headers-moe" ;;
    --hybrid) example="headers-hybrid" ;;
    --real) example="real" ;;
    --torch) [ $# -ge 2 ] || { echo "demo: --torch needs a folder" >&2; exit 2; }; torch=(--torch "$2"); shift ;;
    -h|--help) sed -n '3,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "demo: unknown argument '$1'; see scripts/demo.sh --help" >&2; exit 2 ;;
  esac
  shift
done

# Finds the GPUs to train on, by nvidia-smi's numbers: the build has code for them, and their driver is for CUDA 13.
gpus=()
find_gpus() {
  command -v nvidia-smi >/dev/null || return 0
  local listed line
  if ! listed=$(nvidia-smi --query-gpu=index,driver_version,compute_cap --format=csv,noheader 2>&1); then
    echo "demo: on CPUs, since nvidia-smi fails: $listed" >&2
    return
  fi
  while read -r line; do
    if ! [[ $line =~ ^([0-9]+),\ (([0-9]+)\.[0-9.]+),\ (([0-9]+)\.[0-9]+)$ ]]; then
      echo "demo: no GPU, says nvidia-smi: $line" >&2
    elif [ "${BASH_REMATCH[3]}" -lt 580 ]; then
      echo "demo: not on GPU ${BASH_REMATCH[1]}: CUDA 13 needs a driver 580 or later, and this one is ${BASH_REMATCH[2]}" >&2
    elif [ "${BASH_REMATCH[5]}" -lt 8 ]; then
      echo "demo: not on GPU ${BASH_REMATCH[1]}: its compute capability is ${BASH_REMATCH[4]}, and the kernels need 8.0" >&2
    else
      gpus+=("${BASH_REMATCH[1]}")
    fi
  done <<<"$listed"
}
[ "$example" = real ] || find_gpus
# GPUs in the user's CUDA_VISIBLE_DEVICES are used instead; workers offer these.
if [ ${#gpus[@]} -gt 0 ] && [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
  case $CUDA_VISIBLE_DEVICES in
    ""|-1|NoDevFiles) gpus=() ;;
    *) IFS=, read -ra gpus <<<"$CUDA_VISIBLE_DEVICES" ;;
  esac
fi
if [ "$example" = headers-moe ] && [ ${#gpus[@]} -lt 2 ]; then gpus=(); fi
CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${gpus[*]}")
export CUDA_VISIBLE_DEVICES
cuda=() targets=(tandem tandem-controller tandem-worker tandem-trainer)
if [ ${#gpus[@]} -gt 0 ]; then cuda=(--cuda) targets+=(tandem-trainer-cuda); fi
[ "$example" != real ] || scripts/setup.sh --data --transformers "${torch[@]}"
scripts/build.sh "${cuda[@]}" "${torch[@]}" --target "${targets[@]}"

# The newest headers that a compiler brought: /usr/include/c++/12 on Debian 12.
headers=$(find /usr/include/c++ -mindepth 1 -maxdepth 1 -type d | sort -V | tail -n 1)
[ -n "$headers" ] || { echo "demo: no C++ headers below /usr/include/c++; install g++" >&2; exit 1; }
run=runs/demo-$(date +%Y%m%d-%H%M%S)
mkdir -p "$run"
if [ "$example" = real ]; then
  python=$HOME/.cache/tandem/transformers-5.23.0/bin/python
  [ -x "$python" ] || { echo "demo: --real needs transformers on the wheel's LibTorch; omit --torch" >&2; exit 1; }
  started=$SECONDS
  quiet=(env TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1 TQDM_DISABLE=1 TOKENIZERS_PARALLELISM=true)
  "${quiet[@]}" "$python" scripts/demo_real.py make "$headers" "$run"
  step() { echo "demo: tandem $*"; build/release/bin/tandem "$@"; }
  step data prepare "$run/corpus.jsonl" --tokenizer "$run/model" --out "$run/tokens"
  sed -e "s#runs/real#$run#" examples/real.yaml >"$run/job.yaml"
  step run -f "$run/job.yaml" --workers 2 --slots 1
  step export "$run/checkpoints" --to "$run/export" --dtype fp32
  "${quiet[@]}" "$python" scripts/demo_real.py show "$run"
  echo "demo: $((SECONDS - started)) s after the build; the model is $run/export"
  exit
fi
sed -e "s#/usr/include/c++/12#$headers#" -e "s#runs/$example#$run/checkpoints#" "examples/$example.yaml" >"$run/job.yaml"
shape=(--workers 2 --slots 1)
if [ ${#gpus[@]} -gt 0 ]; then
  shape=(--workers 1)
  [ ${#gpus[@]} -gt 1 ] || sed -i 's/^  ranks: 2$/  ranks: 1/' "$run/job.yaml"
fi
echo "demo: tandem run -f $run/job.yaml ${shape[*]}"
exec build/release/bin/tandem run -f "$run/job.yaml" "${shape[@]}"
