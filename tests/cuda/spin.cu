// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "tests/cuda/spin.h"

namespace tandem::cuda {
namespace {

__device__ uint64_t Now() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

__global__ void SpinKernel(uint64_t nanoseconds) {
  const uint64_t end = Now() + nanoseconds;
  while (Now() < end) {
  }
}

}  // namespace

void Spin(int64_t nanoseconds, CUstream_st* stream) {
  SpinKernel<<<1, 1, 0, stream>>>(static_cast<uint64_t>(nanoseconds));
}

}  // namespace tandem::cuda
