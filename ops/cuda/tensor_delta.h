// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/kernels.h"
#include "ops/gated_delta.h"

namespace tandem::ops::cuda {

// Gated delta nets of bfloat16 on tensor cores, for shapes for which DeltasOnTensorCores (delta_work.h) is
// true. Operands of products are rounded to bfloat16, also the matrices of a piece, what tokens write, states
// and adjoints. Systems of equations are solved in float, and states and adjoints are passed from piece to
// piece in float.

// Whether the kernels can run: a block may have their shared memory, at most 153 KiB, on the current GPU, and
// matrices and work memory begin at multiples of 16 bytes. If not, binding throws std::invalid_argument;
// there is no fallback.
bool FitsTensorDelta(const GatedDeltaArgs<Bf16>& args);
bool FitsTensorDelta(const GatedDeltaBackwardArgs<Bf16>& args);

// Launch the kernels as LaunchKernel (kernels.h) does.
int LaunchTensorDelta(const GatedDeltaArgs<Bf16>& args, Stream stream);
int LaunchTensorDelta(const GatedDeltaBackwardArgs<Bf16>& args, Stream stream);

}  // namespace tandem::ops::cuda
