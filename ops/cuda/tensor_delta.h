// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/kernels.h"
#include "ops/gated_delta.h"

namespace tandem::ops::cuda {

// Gated delta nets of bfloat16 on tensor cores, where DeltasOnTensorCores (delta_work.h). What is multiplied
// there is bfloat16: matrices of a piece's tokens, what tokens write, and the states and adjoints that a
// product reads are rounded. Systems are solved in float, and what is passed on is added up in float.

// Whether the current GPU gives a block the shared memory that this takes, 153 KiB at most, and matrices and
// work memory begin at multiples of 16 bytes. Without both it is not computed.
bool FitsTensorDelta(const GatedDeltaArgs<Bf16>& args);
bool FitsTensorDelta(const GatedDeltaBackwardArgs<Bf16>& args);

// As Launch (kernels.h).
int LaunchTensorDelta(const GatedDeltaArgs<Bf16>& args, Stream stream);
int LaunchTensorDelta(const GatedDeltaBackwardArgs<Bf16>& args, Stream stream);

}  // namespace tandem::ops::cuda
