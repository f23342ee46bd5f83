#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes an archive that runs wherever it is unpacked, on a Linux whose libc and libstdc++ are at least as new as this one's. It
# has the programs, what they load (LibTorch for CPUs too), units, examples and pages. Run scripts/build.sh first.
#
#   scripts/package.sh [--folder DIR]
#
#   --folder DIR  puts the content into DIR, without an archive
set -euo pipefail
cd "$(dirname "$0")/.."

folder=
while [ $# -gt 0 ]; do
  case $1 in
    --folder) [ $# -ge 2 ] || { echo "package: --folder needs a folder" >&2; exit 2; }; folder=$2; shift ;;
    -h|--help) sed -n '3,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "package: unknown argument '$1'; see scripts/package.sh --help" >&2; exit 2 ;;
  esac
  shift
done
[ -e build/release/cmake_install.cmake ] || { echo "package: no build/release yet; run scripts/build.sh" >&2; exit 1; }

fill() {
  cmake --install build/release --prefix "$1" --component programs --strip >/dev/null
  cmake --install build/release --prefix "$1" --component libraries >/dev/null
}
if [ -n "$folder" ]; then
  fill "$folder"
  exit 0
fi
staging=$(mktemp -d build/package.XXXXXX)
trap 'rm -rf "$staging"' EXIT
name=tandem-$(build/release/bin/tandem --version | tr -d ' ()' | tr '+' '-')-linux-$(uname -m)
fill "$staging/$name"
tar -C "$staging" --owner=0 --group=0 -czf "build/$name.tar.gz" "$name"
echo "package: build/$name.tar.gz"
