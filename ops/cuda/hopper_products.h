// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ops/cuda/kernels.h"
#include "ops/grouped_linear.h"

namespace tandem::ops::cuda {

// The experts' products of bfloat16 by CUTLASS's kernels for GPUs of capability 9.0, whose tensor cores read
// shared memory themselves and whose copies to it are asynchronous. As sparse_kernels.h says of Launch for
// the same arguments, and for begins on the host too; in another order of additions, which is as fixed.

// The release of them that the current GPU runs, as another may add in another order; empty: it has none.
std::string HopperVersion();

// Whether the current GPU has them, and these arguments suit them: rows and matrices begin at multiples of 16
// bytes. Of one layer they always do or never do: the arena's pieces begin at multiples of 256 bytes, and
// rows are as long on every rank and in every schedule.
template <typename Args>
bool IsHopperProduct(const Args&) {
  return false;  // of other types
}
bool IsHopperProduct(const GroupedLinearArgs<Bf16>& args);
bool IsHopperProduct(const GroupedLinearBackwardInputArgs<Bf16>& args);
bool IsHopperProduct(const GroupedLinearBackwardWeightArgs<Bf16>& args);

int LaunchHopper(const GroupedLinearArgs<Bf16>& args, Stream stream);
int LaunchHopper(const GroupedLinearBackwardInputArgs<Bf16>& args, Stream stream);
int LaunchHopper(const GroupedLinearBackwardWeightArgs<Bf16>& args, Stream stream);

}  // namespace tandem::ops::cuda
