// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/call.h"
#include "ops/grouped_linear.h"

namespace tandem::ops {

class DeviceKernels;

// Throws std::invalid_argument where begins on the host do not fit.
void CheckBegins(const int64_t* begins, int64_t experts, int64_t rows);

// The experts' products where begins are on the host: one matrix product of `kernels` an expert, of the rows
// that it has now: on a GPU they are those of when the operation is bound. E: float, double, Bf16.
template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearArgs<E>& args);
template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearBackwardInputArgs<E>& args);
template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearBackwardWeightArgs<E>& args);

}  // namespace tandem::ops
