// SPDX-License-Identifier: Apache-2.0
// Computes the gradient norm, before and after its exchange. Compiled without contraction (CMakeLists.txt),
// so the bits are those of the CPU's loops.
#include <cuda_runtime.h>

#include "fsdp/cuda/launch.h"

namespace tandem::fsdp::cuda {
namespace {

constexpr int kThreads = 256;

// Called with one block: all threads read, and one adds in the order of the units.
__global__ void SumTerms(const UnitNormTerms* const* units, int num_units, const RunInputs* inputs,
                         double uncounted, NormTerms* own) {
  __shared__ UnitNormTerms shared[kThreads];
  DoubleDouble squares;
  double nonfinite = 0;
  for (int first = 0; first < num_units; first += kThreads) {
    const int count = num_units - first < kThreads ? num_units - first : kThreads;
    __syncthreads();
    if (threadIdx.x < count) {
      shared[threadIdx.x] = *units[first + threadIdx.x];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 0; i < count; ++i) {
        squares.Add(shared[i].squares);
        nonfinite += shared[i].nonfinite;
      }
    }
  }
  if (threadIdx.x == 0) {
    *own = {squares.high,
            squares.low,
            nonfinite,
            static_cast<double>(inputs->requests.bits),
            inputs->requests.profile,
            uncounted,
            inputs->requests.limit};
  }
}

__global__ void Agree(const NormTerms* terms, int ranks, MeanConfig config, NormOutcome* outcome) {
  *outcome = AgreeOnNorm(terms, ranks, config);
}

}  // namespace

int LaunchSumTerms(const UnitNormTerms* const* units, int num_units, const RunInputs* inputs,
                   int64_t uncounted, NormTerms* own, Stream stream) {
  SumTerms<<<1, kThreads, 0, stream>>>(units, num_units, inputs, static_cast<double>(uncounted), own);
  return cudaGetLastError();
}

int LaunchAgree(const NormTerms* terms, int ranks, const MeanConfig& config, NormOutcome* outcome,
                Stream stream) {
  Agree<<<1, 1, 0, stream>>>(terms, ranks, config, outcome);
  return cudaGetLastError();
}

}  // namespace tandem::fsdp::cuda
