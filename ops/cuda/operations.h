// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/operations.h"

namespace tandem::ops {

// Operations on the current GPU and stream: our kernels, matrix products by cuBLASLt, and attention of
// bfloat16 by cuDNN.
const Operations& CudaOperations();

}  // namespace tandem::ops
