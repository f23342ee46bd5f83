// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::device {

// A bfloat16 in memory: the upper half of a float, as c10::BFloat16 lays it out. It has no functions, because
// a function that files for several instruction sets share would be compiled for the widest of them
// (cpu/simd.h).
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

// The type of arithmetic (sums, statistics, exponentials) on elements that memory holds as E. A result is
// rounded to E once, to the nearest, ties to even.
template <typename E>
using Arithmetic = typename ArithmeticOf<E>::Type;

}  // namespace tandem::device
