// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "device/bf16.h"
#include "device/cuda/pack.cuh"

namespace tandem::ops::cuda {

using device::Arithmetic;
using device::Bf16;
using device::kPackSize;
using device::Pack;

// Convert between elements in memory and the arithmetic type.
__device__ inline float Widen(float x) { return x; }
__device__ inline double Widen(double x) { return x; }
__device__ inline float Widen(Bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

__device__ inline void Narrow(float x, float& to) { to = x; }
__device__ inline void Narrow(double x, double& to) { to = x; }
__device__ inline void Narrow(float x, Bf16& to) { to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

// exp(x) with a relative error of |x| 2^-24 and two units in the last place; it uses the hardware's power of
// two. Subnormal results are 0.
__device__ inline float Exp(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634F));
  return y;
}
__device__ inline double Exp(double x) { return exp(x); }

// Unlike Exp, exp is exact to the last places.
template <typename T>
__device__ T SigmoidOf(T x) {
  return 1 / (1 + exp(-x));
}

template <typename E, int N>
__device__ Pack<E, N> PackAt(const E* elements, int64_t pack) {
  return reinterpret_cast<const Pack<E, N>*>(elements)[pack];
}
template <typename E, int N>
__device__ void SetPack(E* elements, int64_t pack, const Pack<E, N>& value) {
  reinterpret_cast<Pack<E, N>*>(elements)[pack] = value;
}

// Convert all elements of a pack. A register holds two bfloat16s: one instruction rounds both, and one each
// widens them.
template <typename E, int N>
__device__ void Widen(const Pack<E, N>& pack, Arithmetic<E> (&to)[N]) {
  if constexpr (std::is_same_v<E, Bf16> && N % 2 == 0) {
    unsigned pairs[N / 2];
    memcpy(pairs, &pack, sizeof(pack));
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      to[2 * i] = __uint_as_float(pairs[i] << 16);
      to[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      to[i] = Widen(pack.e[i]);
    }
  }
}

template <typename E, int N>
__device__ void Narrow(const Arithmetic<E> (&from)[N], Pack<E, N>& to) {
  if constexpr (std::is_same_v<E, Bf16> && N % 2 == 0) {
    __nv_bfloat162 pairs[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      pairs[i] = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
    }
    memcpy(&to, pairs, sizeof(to));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      Narrow(from[i], to.e[i]);
    }
  }
}

// Calls launch(Packed<n>()), where n is the number of elements of a pack: kPackSize<E> if it divides all row
// sizes and all matrices are aligned to 32 bytes, otherwise 1. Null matrices are ignored.
template <int N>
struct Packed {
  static constexpr int kSize = N;
};
template <typename E, typename Launch>
void WithPacks(std::initializer_list<int64_t> row_sizes, std::initializer_list<const void*> matrices,
               const Launch& launch) {
  bool whole = true;
  for (const int64_t size : row_sizes) {
    whole = whole && size % kPackSize<E> == 0;
  }
  for (const void* matrix : matrices) {
    whole = whole && reinterpret_cast<uintptr_t>(matrix) % 32 == 0;
  }
  if (whole) {
    launch(Packed<kPackSize<E>>());
  } else {
    launch(Packed<1>());
  }
}

}  // namespace tandem::ops::cuda
