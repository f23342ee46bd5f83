// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// The experts' rows and weights of a matrix product for each expert over its own rows. `begins`, [experts +
// 1], says where each expert's rows begin, the first expert's at 0, and ends with the number of all rows, at
// most `rows`. Rows behind these are neither read nor written. If on_host, `begins` is in the host's memory,
// and inconsistent values are refused; otherwise it is on the GPU and read there. The experts' weights are
// consecutive.
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

// Sets the gradient of expert e's weight to grad_y^T x over its rows, or adds it. An expert without rows gets
// zeros, unless it is added to. One of the two outputs is null: sums go to grad_weight, or, if x is bfloat16,
// each element is rounded once to `rounded`.
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
