// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ops/cuda/kernels.h"
#include "ops/grouped_linear.h"

namespace tandem::ops::cuda {

// The experts' products of bfloat16 by CUTLASS's kernels for GPUs of capability 9.0, whose tensor cores read
// shared memory directly and whose copies to it are asynchronous. LaunchHopper computes what LaunchKernel
// (kernels.h) computes for the same arguments, and also accepts begins on the host. It adds in another order,
// which is fixed too.

// The release of these kernels that the current GPU runs, because another release may add in another order;
// empty if it has none.
std::string HopperVersion();

// Whether the current GPU has these kernels and the arguments suit them: rows and matrices must begin at
// multiples of 16 bytes. For one layer the answer is always the same, because the arena's pieces begin at
// multiples of 256 bytes, and rows have the same length on every rank and in every schedule.
template <typename Args>
bool IsHopperProduct(const Args&) {
  return false;  // for other types
}
bool IsHopperProduct(const GroupedLinearArgs<Bf16>& args);
bool IsHopperProduct(const GroupedLinearBackwardInputArgs<Bf16>& args);
bool IsHopperProduct(const GroupedLinearBackwardWeightArgs<Bf16>& args);

int LaunchHopper(const GroupedLinearArgs<Bf16>& args, Stream stream);
int LaunchHopper(const GroupedLinearBackwardInputArgs<Bf16>& args, Stream stream);
int LaunchHopper(const GroupedLinearBackwardWeightArgs<Bf16>& args, Stream stream);

}  // namespace tandem::ops::cuda
