// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/norm_config.h"
#include "ops/workspace.h"

namespace tandem::ops {

// y = x / sqrt(mean(x^2) + epsilon) * (weight + added), row by row. x, y: [rows, columns]; weight: [columns].
template <typename E>
struct RmsNormArgs {
  static constexpr const char* kName = "RmsNorm";
  const E* x;
  const E* weight;
  NormConfig norm;
  int64_t rows;
  int64_t columns;
  E* y;
};

// grad_x (+)= residual + the norm's gradient; grad_weight (+)= the sum over the rows. The CPU adds rows in
// order; a GPU adds kNormGroups partial sums, each over every kNormGroups-th row. `residual` is the part of
// x's gradient that does not come through the norm, or null. The reciprocal norms are recomputed.
template <typename E>
struct RmsNormBackwardArgs {
  static constexpr const char* kName = "RmsNormBackward";
  const E* grad_y;
  const E* x;
  const E* weight;
  NormConfig norm;
  int64_t rows;
  int64_t columns;
  const E* residual;
  bool add_x;
  E* grad_x;
  bool add_weight;
  device::Arithmetic<E>* grad_weight;
  Workspace work;  // of RmsNormBackwardWorkBytes (row_work.h)
};

}  // namespace tandem::ops
