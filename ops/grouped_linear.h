// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// A matrix product for each expert over its own rows. begins: [experts + 1], where each expert's rows begin,
// the first's at 0, and how many there are together, at most `rows`; rows behind these are not read, and left
// alone. It is on the host, where begins that do not fit are refused, or on the GPU and read there:
// on_host. The experts' weights lie one after another.
//
// work: GroupedWorkBytes (sparse_work.h).

// y = x W_e^T for the rows of expert e. x: [rows, inputs]; weight: [experts outputs, inputs]; y: [rows,
// outputs].
template <typename E>
struct GroupedLinearArgs {
  static constexpr const char* kName = "GroupedLinear";
  const int64_t* begins;
  bool on_host;
  int64_t experts;
  int64_t rows;
  const E* x;
  const E* weight;
  int64_t inputs;
  int64_t outputs;
  E* y;
  Workspace work;
};

// grad_x = grad_y W_e.
template <typename E>
struct GroupedLinearBackwardInputArgs {
  static constexpr const char* kName = "GroupedLinearBackwardInput";
  const int64_t* begins;
  bool on_host;
  int64_t experts;
  int64_t rows;
  const E* grad_y;
  const E* weight;
  int64_t inputs;
  int64_t outputs;
  E* grad_x;
  Workspace work;
};

// The gradient of expert e's weight (+)= grad_y^T x over its rows; zero where it has none and nothing is
// added to. One of the two is null: sums are in grad_weight, or each element is rounded once to `rounded`,
// where x is of bfloat16.
template <typename E>
struct GroupedLinearBackwardWeightArgs {
  static constexpr const char* kName = "GroupedLinearBackwardWeight";
  const int64_t* begins;
  bool on_host;
  int64_t experts;
  int64_t rows;
  const E* grad_y;
  const E* x;
  int64_t inputs;
  int64_t outputs;
  bool add;
  device::Arithmetic<E>* grad_weight;
  E* rounded;
  Workspace work;
};

}  // namespace tandem::ops
