// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// gates[t] = sigmoid(x[t] · weight), one number for each token. x: [rows, columns]; weight: [columns].
template <typename E>
struct TokenGateArgs {
  static constexpr const char* kName = "TokenGate";
  const E* x;
  const E* weight;
  int64_t rows;
  int64_t columns;
  device::Arithmetic<E>* gates;
};

// grad_x += the gradient of x. grad_weight (+)= the gradient of the weight, summed over the rows in the same
// order as by RmsNormBackward; null if it is not needed.
template <typename E>
struct TokenGateBackwardArgs {
  static constexpr const char* kName = "TokenGateBackward";
  TokenGateArgs<E> forward;  // its `gates` are read
  const device::Arithmetic<E>* grad_gates;
  E* grad_x;
  bool add_weight;
  device::Arithmetic<E>* grad_weight;
  Workspace work;  // of RmsNormBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
