// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/operations.h"

namespace tandem::ops {

// On the current GPU and stream: own kernels, matrix products by cuBLASLt, attention of bfloat16 by cuDNN.
const Operations& CudaOperations();

}  // namespace tandem::ops
