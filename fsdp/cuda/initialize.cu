// SPDX-License-Identifier: Apache-2.0
// Initial values. Compiled without contraction (CMakeLists.txt): the bits are those of the host.
#include <cuda_runtime.h>

#include "fsdp/cuda/launch.h"

namespace tandem::fsdp::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void InitializeEach(InitialValues initial, T* values) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < initial.elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    values[i] = static_cast<T>(InitialValue(initial.distribution, initial.deviation, initial.seed,
                                            initial.stream, static_cast<uint64_t>(initial.first + i)));
  }
}

}  // namespace

template <typename T>
int LaunchInitialize(const InitialValues& initial, T* values, Stream stream) {
  if (initial.elements == 0) {
    return cudaSuccess;
  }
  const int64_t blocks = (initial.elements + kThreads - 1) / kThreads;
  InitializeEach<<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), kThreads, 0, stream>>>(initial,
                                                                                                  values);
  return cudaGetLastError();
}

template int LaunchInitialize(const InitialValues&, float*, Stream);
template int LaunchInitialize(const InitialValues&, double*, Stream);

}  // namespace tandem::fsdp::cuda
