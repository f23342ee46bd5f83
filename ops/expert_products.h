// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/grouped_linear.h"

namespace tandem::ops {

class DeviceKernels;

// Throws c10::Error where begins on the host do not fit.
void CheckBegins(const int64_t* begins, int64_t experts, int64_t rows);

// The experts' products where begins are on the host: one matrix product of `kernels` an expert. E: float,
// double, Bf16.
template <typename E>
void MultiplyEach(const DeviceKernels& kernels, const GroupedLinearArgs<E>& args);
template <typename E>
void MultiplyEach(const DeviceKernels& kernels, const GroupedLinearBackwardInputArgs<E>& args);
template <typename E>
void MultiplyEach(const DeviceKernels& kernels, const GroupedLinearBackwardWeightArgs<E>& args);

}  // namespace tandem::ops
