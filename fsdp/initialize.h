// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/layout.h"

namespace tandem::fsdp {

// How a parameter starts: normal(0, deviation), or all ones.
struct ParameterInit {
  bool ones = false;
  double deviation = 0;
};

// What the numbers of a parameter are drawn from: its name.
uint64_t ParameterStream(const Parameter& parameter);

// Writes elements `part` (flat coordinates, within the parameter) of the parameter's initial values to
// `values`, which begins at part.begin. Each element depends on seed, parameter name and its index within the
// parameter alone. T: float or double.
template <typename T>
void InitializeParameter(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part,
                         T* values);

}  // namespace tandem::fsdp
