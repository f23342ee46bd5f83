// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/kernels.h"

namespace tandem::ops::cuda {

// The scan of bfloat16 on tensor cores, for heads of 64 channels with 64 or 128 numbers of state each, in
// matrices whose rows begin at multiples of 16 bytes, on GPUs that give a block 112 KiB of shared memory.
// What is multiplied there is bfloat16: weights of a piece and the states and adjoints that a product reads
// are rounded; those that are passed on and kept are not.
bool FitsTensorScan(const StateScanArgs<Bf16>& args);
bool FitsTensorScan(const StateScanBackwardArgs<Bf16>& args);

// As Launch (kernels.h).
int LaunchTensorScan(const StateScanArgs<Bf16>& args, Stream stream);
int LaunchTensorScan(const StateScanBackwardArgs<Bf16>& args, Stream stream);

}  // namespace tandem::ops::cuda
