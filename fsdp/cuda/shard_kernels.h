// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/shard_kernels.h"

namespace tandem::fsdp {

// The kernels of the GPU that is current; it must be the same when they are made and when they run. They keep
// small tables (pieces, pointers) in memory of cudaMalloc.
const ShardKernels& CudaShardKernels();

}  // namespace tandem::fsdp
