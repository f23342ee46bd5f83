// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/grouped_linear.h"

namespace tandem::ops {

class DeviceKernels;

// The experts' products where begins are on the host: one matrix product of `kernels` an expert. E: float,
// double, Bf16.
template <typename E>
void MultiplyEach(const DeviceKernels& kernels, const GroupedLinearArgs<E>& args);
template <typename E>
void MultiplyEach(const DeviceKernels& kernels, const GroupedLinearBackwardInputArgs<E>& args);
template <typename E>
void MultiplyEach(const DeviceKernels& kernels, const GroupedLinearBackwardWeightArgs<E>& args);

}  // namespace tandem::ops
