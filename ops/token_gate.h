// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// gates[t] = sigmoid(x[t] · weight): a number a token, of statistics. x: [rows, columns]; weight: [columns].
template <typename E>
struct TokenGateArgs {
  static constexpr const char* kName = "TokenGate";
  const E* x;
  const E* weight;
  int64_t rows;
  int64_t columns;
  device::Arithmetic<E>* gates;
};

// grad_x += the gradient; grad_weight (+)= that summed over the rows, as RmsNormBackward sums them; null: it
// is not computed.
template <typename E>
struct TokenGateBackwardArgs {
  static constexpr const char* kName = "TokenGateBackward";
  TokenGateArgs<E> forward;  // whose gates are read
  const device::Arithmetic<E>* grad_gates;
  E* grad_x;
  bool add_weight;
  device::Arithmetic<E>* grad_weight;
  Workspace work;  // RmsNormBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
