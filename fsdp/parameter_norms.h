// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/double_double.h"
#include "fsdp/host_device.h"

namespace tandem::fsdp {

// The magnitude of those elements of a tensor that one rank owns.
struct Magnitude {
  DoubleDouble squares;  // their sum; NaN if an element is NaN
  double max_abs = 0;    // of the elements that are not NaN

  TANDEM_HOST_DEVICE void Add(const Magnitude& other) {
    squares.Add(other.squares);
    max_abs = other.max_abs > max_abs ? other.max_abs : max_abs;
  }
};

// The norms of the pieces of one parameter that this rank owns.
struct ParameterNorms {
  Magnitude weight;    // after the update
  Magnitude gradient;  // of the mean gradient, before clipping
  Magnitude update;    // new - old weight
};

}  // namespace tandem::fsdp
