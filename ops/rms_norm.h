// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// y = x / sqrt(mean(x^2) + epsilon) * weight, row by row. x, y: [rows, columns]; weight: [columns].
template <typename E>
struct RmsNormArgs {
  static constexpr const char* kName = "RmsNorm";
  const E* x;
  const E* weight;
  double epsilon;
  int64_t rows;
  int64_t columns;
  E* y;
};

// grad_x (+)= residual + the norm's gradient; grad_weight (+)= summed over the rows: in their order on the
// CPU, on a GPU over kNormGroups blocks, each of every kNormGroups-th row. residual: the gradient that
// reaches x beside the norm; null: none. The reciprocal norms are recomputed.
template <typename E>
struct RmsNormBackwardArgs {
  static constexpr const char* kName = "RmsNormBackward";
  const E* grad_y;
  const E* x;
  const E* weight;
  double epsilon;
  int64_t rows;
  int64_t columns;
  const E* residual;
  bool add_x;
  E* grad_x;
  bool add_weight;
  device::Arithmetic<E>* grad_weight;
  Workspace work;  // RmsNormBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
