// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/shard_kernels.h"

namespace tandem::fsdp {

// The kernels of the current GPU. UnitKernels and NormKernels must run on the GPU that was current when they
// were made. They keep small tables (pieces, pointers) in memory of cudaMalloc.
const ShardKernels& CudaShardKernels();

}  // namespace tandem::fsdp
