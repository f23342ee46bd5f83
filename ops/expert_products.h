// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/call.h"
#include "ops/grouped_linear.h"

namespace tandem::ops {

class DeviceKernels;

// Throws std::invalid_argument unless `begins`, which must be on the host, begins with 0, never decreases and
// ends with at most `rows`.
void CheckBegins(const int64_t* begins, int64_t experts, int64_t rows);

// Bind one matrix product of `kernels` for each expert that has rows; args.begins must be on the host. It is
// read now: the calls are valid for these numbers of rows only. E is float, double or Bf16.
template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearArgs<E>& args);
template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearBackwardInputArgs<E>& args);
template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearBackwardWeightArgs<E>& args);

}  // namespace tandem::ops
