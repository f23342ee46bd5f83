// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/cuda/kernels.h"
#include "ops/state_scan.h"

namespace tandem::ops::cuda {

// The scan of bfloat16 on tensor cores, where ScansOnTensorCores (mixer_work.h). What is multiplied there is
// bfloat16: weights of a piece and the states and adjoints that a product reads are rounded; those that are
// passed on and kept are not.

// Whether the current GPU gives a block the shared memory that this takes, 110 KiB at most, and matrices and
// work memory begin at multiples of 16 bytes. Without both it is not computed.
bool FitsTensorScan(const StateScanArgs<Bf16>& args);
bool FitsTensorScan(const StateScanBackwardArgs<Bf16>& args);

// As Launch (kernels.h).
int LaunchTensorScan(const StateScanArgs<Bf16>& args, Stream stream);
int LaunchTensorScan(const StateScanBackwardArgs<Bf16>& args, Stream stream);

}  // namespace tandem::ops::cuda
