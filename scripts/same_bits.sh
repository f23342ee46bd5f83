#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs 60 small jobs with two builds and compares every loss, norm and array of their checkpoints, byte by byte.
#
#   scripts/same_bits.sh OLD NEW [--sample N] [--job I] [--resume-old] [--gpus N] [--list]
#
# OLD and NEW are folders with binaries (build/release/bin) or commits. A commit is built in a clone under
# ~/.cache/tandem/same_bits and kept there. tests/same_bits/job_files.py says what the jobs are. On GPUs both folders
# have tandem-trainer-cuda, too.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 2; }

# Prints the folder with the binaries of $1.
bin_of() {
  if [ -d "$1" ]; then
    [ -x "$1/tandem-trainer" ] || { echo "same_bits: no tandem-trainer in $1; build it with scripts/build.sh" >&2; exit 2; }
    realpath "$1"
    return
  fi
  local commit clone
  commit=$(git rev-parse --verify --quiet "$1^{commit}") ||
    { echo "same_bits: $1 is neither a folder with binaries nor a commit" >&2; exit 2; }
  clone=$HOME/.cache/tandem/same_bits/$commit
  if [ ! -d "$clone" ]; then
    git clone --quiet --shared --no-checkout . "$clone.new" >&2
    git -C "$clone.new" checkout --quiet --detach "$commit" >&2
    mv "$clone.new" "$clone"
  fi
  (cd "$clone" && scripts/build.sh --target tandem tandem-controller tandem-worker tandem-trainer) >"$clone/build.log" 2>&1 ||
    { echo "same_bits: $1 does not build; see $clone/build.log" >&2; exit 1; }
  echo "$clone/build/release/bin"
}

old=$(bin_of "$1")
new=$(bin_of "$2")
shift 2
exec python3 tests/same_bits/same_bits.py "$old" "$new" "$@"
