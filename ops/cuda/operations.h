// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/operations.h"
#include "ops/sparse_operations.h"

namespace tandem::ops {

// On the current GPU and stream: own kernels, matrix products by cuBLAS in full precision (no TF32).
// Attention keeps the scores of one sequence in memory of LibTorch's allocator: [heads, S, S], twice in the
// backward. Token ids outside the vocabulary give NaN instead of an error.
const Operations& CudaOperations();

// Own kernels, the experts' products too where only the GPU knows their rows.
const SparseOperations& CudaSparseOperations();

}  // namespace tandem::ops
