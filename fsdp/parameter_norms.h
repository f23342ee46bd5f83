// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/double_double.h"

namespace tandem::fsdp {

// The squares of the pieces of one parameter that this rank owns, as sums.
struct ParameterNorms {
  DoubleDouble weight;    // after the update
  DoubleDouble gradient;  // of the mean gradient, before clipping
  DoubleDouble update;    // new - old weight
};

}  // namespace tandem::fsdp
