// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::device {

// A bfloat16 in memory: the upper half of a float, as c10::BFloat16 lays it out. It has no member functions:
// files that are compiled for several instruction sets would share them, and the linker could keep a copy
// that the processor does not understand (ops/cpu/simd.h).
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

// The type in which elements that are stored as E are added, exponentiated and so on. A result is rounded to
// E once, to the nearest, ties to even.
template <typename E>
using Arithmetic = typename ArithmeticOf<E>::Type;

}  // namespace tandem::device
