#pragma once

#include <cstdint>

namespace tandem::ops {

// A bfloat16 in memory: the upper half of a float, as c10::BFloat16 lays it out. It has no functions: code
// that instruction sets share would be compiled for the widest of them (cpu/simd.h).
struct Bf16 {
  uint16_t bits;
};

template <typename E>
struct ArithmeticOf {
  using Type = E;
};
template <>
struct ArithmeticOf<Bf16> {
  using Type = float;
};

// What is computed in where the elements in memory are E: sums, statistics, exponentials. A result is rounded
// to E once, to the nearest, ties to even.
template <typename E>
using Arithmetic = typename ArithmeticOf<E>::Type;

}  // namespace tandem::ops
