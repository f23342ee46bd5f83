#pragma once

#include <cuda_bf16.h>

#include "ops/bf16.h"

namespace tandem::ops::cuda {

// Between elements in memory and what is computed in (Arithmetic).
__device__ inline float Widen(float x) { return x; }
__device__ inline double Widen(double x) { return x; }
__device__ inline float Widen(Bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

__device__ inline void Narrow(float x, float& to) { to = x; }
__device__ inline void Narrow(double x, double& to) { to = x; }
__device__ inline void Narrow(float x, Bf16& to) { to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

}  // namespace tandem::ops::cuda
