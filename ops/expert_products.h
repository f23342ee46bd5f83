// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/call.h"
#include "ops/grouped_linear.h"

namespace tandem::ops {

class DeviceKernels;

// Throws std::invalid_argument if `begins`, on the host, are inconsistent.
void CheckBegins(const int64_t* begins, int64_t experts, int64_t rows);

// The experts' products if `begins` are on the host: one matrix product of `kernels` for each expert, on the
// rows that it has. On a GPU these are the rows at the time of binding. E is float, double or Bf16.
template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearArgs<E>& args);
template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearBackwardInputArgs<E>& args);
template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearBackwardWeightArgs<E>& args);

}  // namespace tandem::ops
