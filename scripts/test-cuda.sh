#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the tests that need GPUs, on the GPUs of this machine. Tests that need more GPUs than there are report
# that they are skipped.
#
#   scripts/test-cuda.sh [--no-build [--build DIR]] [GOOGLETEST-ARGUMENT ...]
#
#   --no-build   run existing binaries, for instance on a machine that cannot build them
#   --build DIR  their build folder (default build/cuda)
#
# Streams and arena, NCCL groups, every operation and the loops over shards against the CPU; whole jobs on 1, 2 and
# 4 GPUs: the same bits under kernels of random length on every stream, the same bits on any number of GPUs, the
# CPU's loss curve; a killed rank; compute-sanitizer's memcheck and racecheck where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/cuda make=1 arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --no-build) make=0 ;;
    --build) [ $# -ge 2 ] || { echo "test-cuda: --build needs a folder" >&2; exit 2; }; build=$2; shift ;;
    -h|--help) sed -n '3,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
[ $make = 0 ] || [ "$build" = build/cuda ] || { echo "test-cuda: --build goes with --no-build; the preset builds in build/cuda" >&2; exit 2; }

if ! { command -v nvidia-smi && nvidia-smi -L; } >/dev/null 2>&1; then
  echo "test-cuda: no GPU here; to compile without one: scripts/setup.sh --tests --cuda && cmake --preset cuda && cmake --build --preset cuda" >&2
  exit 1
fi
if [ $make = 1 ]; then
  scripts/setup.sh --tests --cuda
  mkdir -p build
  cmake --preset cuda >build/configure.log 2>&1 || { tail -n 30 build/configure.log >&2; exit 1; }
  cmake --build "$build" --target tandem_cuda_test
fi
test=$build/bin/tandem_cuda_test
[ -x "$test" ] || { echo "test-cuda: no $test; run scripts/test-cuda.sh without --no-build where nvcc is" >&2; exit 1; }
nvidia-smi -L

"$test" "${arguments[@]}"
if [ ${#arguments[@]} = 0 ]; then
  if command -v compute-sanitizer >/dev/null; then
    # NCCL makes calls of the runtime that are expected to fail: these errors are not ours.
    compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 "$test" --gtest_brief=1 \
      --gtest_filter='*CudaOperationsTest.*:*CudaCrossEntropyTest.*:*LossTest.*:DropOverflowTest.*:*CudaAttentionTest.IsThat*:*CudaAttentionTest.StaysWithin*:*CudaAttentionTest.InParts*:*CudaHeadsTest.*:*CudaRepeatsTest.*:*CudaSparseOperationsTest.*:CudaExpertProductsTest.*:*NoRowsTest.*:*CudaFoldTest.*:CudaOptimizerStepTest.*:*CudaUnitShardTest.GivesTheBits*:*CudaUnitShardTest.NumbersOfAll*:*CudaClassesTest.*:*CudaMixersTest.*:CudaDeviceTest.Arenas*:WindowTest.*:CudaParityTest.TheArena*'
    # Kernels whose threads exchange values in shared memory.
    compute-sanitizer --tool racecheck --error-exitcode 1 "$test" --gtest_brief=1 \
      --gtest_filter='*CudaOperationsTest.RmsNorm/*:*CudaOperationsTest.Embedding/*:*CudaCrossEntropyTest.*:*LossTest.Chunks*:*CudaHeadsTest.HeadNormOf*:*CudaFoldTest.*:CudaOptimizerStepTest.*:*CudaMixersTest.*'
  else
    echo "test-cuda: no compute-sanitizer here, memory is not checked" >&2
  fi
fi
