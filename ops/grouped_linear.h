// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// The shapes of one matrix product for each expert, with the expert's own weight and rows. `begins`, [experts
// + 1], has the first row of each expert, beginning with 0, and at its end the number of all rows, at most
// `rows`. Rows after these are neither read nor written. If on_host, `begins` is in the host's memory, and
// binding throws std::invalid_argument for inconsistent values; otherwise it is on the GPU and read there.
// The experts' weights are consecutive.
//
// `work` has GroupedWorkBytes (sparse_work.h).
struct ExpertRows {
  const int64_t* begins;
  bool on_host;
  int64_t experts;
  int64_t rows;
  int64_t inputs;
  int64_t outputs;
  Workspace work;
};

// y = x W_e^T for the rows of expert e. x: [rows, inputs]; weight: [experts outputs, inputs]; y: [rows,
// outputs].
template <typename E>
struct GroupedLinearArgs : ExpertRows {
  static constexpr const char* kName = "GroupedLinear";
  const E* x;
  const E* weight;
  E* y;
};

// grad_x = grad_y W_e.
template <typename E>
struct GroupedLinearBackwardInputArgs : ExpertRows {
  static constexpr const char* kName = "GroupedLinearBackwardInput";
  const E* grad_y;
  const E* weight;
  E* grad_x;
};

// The gradient of expert e's weight (+)= grad_y^T x over the expert's rows. An expert without rows gets zeros
// unless `add`. One of grad_weight and `rounded` is null; `rounded`, only for bfloat16, gets each element of
// the gradient rounded once.
template <typename E>
struct GroupedLinearBackwardWeightArgs : ExpertRows {
  static constexpr const char* kName = "GroupedLinearBackwardWeight";
  const E* grad_y;
  const E* x;
  bool add;
  device::Arithmetic<E>* grad_weight;
  E* rounded;
};

}  // namespace tandem::ops
