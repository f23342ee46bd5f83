// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/initial_value.h"
#include "fsdp/layout.h"

namespace tandem::fsdp {

// The initial values of a parameter.
struct ParameterInit {
  Distribution distribution = Distribution::kNormal;
  double deviation = 0;
};

// The number of a parameter's random stream. It depends only on the parameter's name.
uint64_t ParameterStream(const Parameter& parameter);

// Writes the initial values of elements `part` (flat coordinates, within the parameter) to `values`;
// values[0] is that of part.begin. Each value depends only on the seed, the parameter's name and the index
// within the whole parameter, however it is sliced. T is float or double.
template <typename T>
void InitializeParameter(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part,
                         T* values);

}  // namespace tandem::fsdp
