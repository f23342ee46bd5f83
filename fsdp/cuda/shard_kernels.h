// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/shard_kernels.h"

namespace tandem::fsdp {

// Kernels on the GPU that is current where they are made and where they run; small tables of theirs (pieces,
// pointers) are in memory of LibTorch's allocator from then on.
const ShardKernels& CudaShardKernels();

}  // namespace tandem::fsdp
