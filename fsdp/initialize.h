// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/initial_value.h"
#include "fsdp/layout.h"

namespace tandem::fsdp {

// How a parameter starts.
struct ParameterInit {
  Distribution distribution = Distribution::kNormal;
  double deviation = 0;
};

// The random stream of a parameter, which follows from its name.
uint64_t ParameterStream(const Parameter& parameter);

// Writes the initial values of the elements `part` (flat coordinates, within the parameter) to `values`,
// whose first element is part.begin. Each value depends only on seed, parameter name and its index within the
// whole parameter, however that is sliced. T: float or double.
template <typename T>
void InitializeParameter(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part,
                         T* values);

}  // namespace tandem::fsdp
