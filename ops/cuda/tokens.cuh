// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/tokens.h"

namespace tandem::ops::cuda {

__device__ inline int64_t IdOf(const Tokens& tokens, int64_t row) {
  return tokens.ids[row / tokens.length * tokens.stride + row % tokens.length];
}

template <typename T>
__device__ T NotANumber() {
  return static_cast<T>(nan(""));
}

}  // namespace tandem::ops::cuda
