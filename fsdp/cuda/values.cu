// SPDX-License-Identifier: Apache-2.0
// Computes initial values and rounding, each element alone. Compiled without contraction (CMakeLists.txt),
// so the bits are those of the host.
#include <cuda_runtime.h>

#include "device/cuda/pack.cuh"
#include "fsdp/cuda/launch.h"

namespace tandem::fsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = device::kPackSize<Bf16>;
using Floats = device::Pack<float, device::kPackSize<float>>;
using Rounded = device::Pack<Bf16, kPack>;

// Rounds the first `packs` packs, and the elements after them one by one.
__global__ void RoundEach(const float* from, int64_t packs, int64_t elements, Bf16* to) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = first; i < packs; i += step) {
    Floats halves[2] = {reinterpret_cast<const Floats*>(from)[2 * i],
                        reinterpret_cast<const Floats*>(from)[2 * i + 1]};
    Rounded pack;
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      pack.e[k] = RoundToBf16(halves[k / (kPack / 2)].e[k % (kPack / 2)]);
    }
    reinterpret_cast<Rounded*>(to)[i] = pack;
  }
  for (int64_t i = kPack * packs + first; i < elements; i += step) {
    to[i] = RoundToBf16(from[i]);
  }
}

template <typename T>
__global__ void InitializeEach(InitialValues initial, T* values) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < initial.elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    values[i] = static_cast<T>(InitialValue(initial.distribution, initial.deviation, initial.seed,
                                            initial.stream, static_cast<uint64_t>(initial.first + i)));
  }
}

// Returns the blocks for `threads` threads; beyond a limit, each thread computes several elements.
unsigned BlocksOf(int64_t threads) {
  const int64_t blocks = (threads + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 65536 ? blocks : 65536);
}

}  // namespace

template <typename T>
int LaunchInitialize(const InitialValues& initial, T* values, Stream stream) {
  if (initial.elements == 0) {
    return cudaSuccess;
  }
  InitializeEach<<<BlocksOf(initial.elements), kThreads, 0, stream>>>(initial, values);
  return cudaGetLastError();
}

template int LaunchInitialize(const InitialValues&, float*, Stream);
template int LaunchInitialize(const InitialValues&, double*, Stream);

int LaunchRound(const float* from, int64_t elements, Bf16* to, Stream stream) {
  if (elements == 0) {
    return cudaSuccess;
  }
  const bool packed =
      (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % sizeof(Rounded) == 0;
  const int64_t packs = packed ? elements / kPack : 0;
  RoundEach<<<BlocksOf(packed ? packs + kPack : elements), kThreads, 0, stream>>>(from, packs, elements, to);
  return cudaGetLastError();
}

}  // namespace tandem::fsdp::cuda
