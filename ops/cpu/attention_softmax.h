// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cpu/attention_blocks.h"
#include "ops/cpu/simd.h"

// What attention on the CPU does with a row of a block's scores: the softmax, in steps that process one block
// at a time, and its backward. Only for files that CMake compiles once for each instruction set (simd.h).
namespace tandem::ops::cpu::TANDEM_ISA {

// Returns, lane by lane, the largest of `most` and of scores [valid]. Sets the rest of the last vector to
// what exp turns into zeros.
template <typename T>
inline Vector<T> LargestOfRow(T* scores, int64_t valid, Vector<T> most) {
  constexpr int64_t kLanes = Lanes<T>::kCount;
  int64_t j = 0;
  for (; j + kLanes <= valid; j += kLanes) {
    most = Max<T>(most, Load(scores + j));
  }
  if (j < valid) {
    const Vector<T> last = LoadFirst(scores + j, valid - j, static_cast<T>(-__builtin_huge_val()));
    Store<T>(scores + j, last);
    most = Max<T>(most, last);
  }
  return most;
}

// Turns scores [valid] into exp(score - largest), followed by zeros up to `padded`. Returns `sum` with these
// added lane by lane.
template <typename T>
inline Vector<T> ExpOfRow(T* scores, int64_t valid, int64_t padded, T largest, Vector<T> sum) {
  int64_t j = 0;
  for (; j < valid; j += Lanes<T>::kCount) {
    const Vector<T> e = Exp<T>(Load(scores + j) - largest);
    Store(scores + j, e);
    sum += e;
  }
  Fill(scores + j, padded - j);
  return sum;
}

// The sum over a head's dims of its context times the context's gradient, which the softmax's backward
// subtracts.
template <typename E, typename T = Arithmetic<E>>
inline T ContextGradientSum(const E* context, const T* gradient, int64_t dim) {
  T sum = 0;
  for (int64_t j = 0; j < dim; ++j) {
    sum += Widen(context[j]) * gradient[j];
  }
  return sum;
}

// Turns scores [valid] into weights, exp(score - lse), and the gradients of the weights into those of the
// scores. Zeros follow up to `padded` in both.
template <typename T>
inline void SoftmaxRowBackward(T* scores, T* gradients, int64_t valid, int64_t padded, T lse, T delta) {
  constexpr int64_t kLanes = Lanes<T>::kCount;
  int64_t j = 0;
  for (; j + kLanes <= valid; j += kLanes) {
    const Vector<T> w = Exp<T>(Load(scores + j) - lse);
    Store(scores + j, w);
    Store<T>(gradients + j, w * (Load(gradients + j) - delta));
  }
  if (j < valid) {
    const int64_t left = valid - j;
    const Vector<T> w = Exp<T>(LoadFirst(scores + j, left, static_cast<T>(-__builtin_huge_val())) - lse);
    Store(scores + j, w);
    Store<T>(gradients + j, w * (LoadFirst(gradients + j, left, delta) - delta));
    j += kLanes;
  }
  Fill(scores + j, padded - j);
  Fill(gradients + j, padded - j);
}

}  // namespace tandem::ops::cpu::TANDEM_ISA
