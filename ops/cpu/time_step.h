// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cpu/simd.h"

// Only for files that CMake compiles once for each instruction set (simd.h).
namespace tandem::ops::cpu::TANDEM_ISA {

inline float Exponential(float x) { return __builtin_expf(x); }
inline double Exponential(double x) { return __builtin_exp(x); }
inline float LogarithmOfMore(float x) { return __builtin_log1pf(x); }
inline double LogarithmOfMore(double x) { return __builtin_log1p(x); }

// The length of a token's time step: the larger of softplus(raw) and `least`.
template <typename T>
struct StepLength {
  StepLength(T raw, T least) {
    constexpr T kLinear = 20;  // the threshold of LibTorch's softplus
    const T exponential = raw > kLinear ? T{0} : Exponential(raw);
    const T softplus = raw > kLinear ? raw : LogarithmOfMore(exponential);
    length = softplus < least ? least : softplus;
    slope = softplus < least ? T{0} : raw > kLinear ? T{1} : exponential / (1 + exponential);
  }

  T length;
  T slope;  // derivative of the length by `raw`
};

}  // namespace tandem::ops::cpu::TANDEM_ISA
