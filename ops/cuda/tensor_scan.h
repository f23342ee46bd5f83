// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/kernels.h"
#include "ops/state_scan.h"

namespace tandem::ops::cuda {

// The scan of bfloat16 on tensor cores, for shapes for which ScansOnTensorCores (mixer_work.h) is true.
// Operands of products are rounded to bfloat16, also the weights of a piece, states and adjoints. States and
// adjoints are passed from piece to piece, and kept, in float.

// Whether the kernels can run: a block may have their shared memory, at most 110 KiB, on the current GPU, and
// matrices and work memory begin at multiples of 16 bytes. If not, binding throws std::invalid_argument;
// there is no fallback.
bool FitsTensorScan(const StateScanArgs<Bf16>& args);
bool FitsTensorScan(const StateScanBackwardArgs<Bf16>& args);

// Launch the kernels as LaunchKernel (kernels.h) does.
int LaunchTensorScan(const StateScanArgs<Bf16>& args, Stream stream);
int LaunchTensorScan(const StateScanBackwardArgs<Bf16>& args, Stream stream);

}  // namespace tandem::ops::cuda
