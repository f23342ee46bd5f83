// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/operations.h"
#ifdef TANDEM_TESTS_ON_GPU
#include "ops/cuda/operations.h"
#endif

namespace tandem::ops::test {

// Returns the operations for tests that run on both kinds of device: those of the CPU in tandem_ops_test, and
// those of the GPU in tandem_cuda_test, which defines TANDEM_TESTS_ON_GPU.
inline const Operations& Tested() {
#ifdef TANDEM_TESTS_ON_GPU
  return CudaOperations();
#else
  return CpuOperations();
#endif
}

}  // namespace tandem::ops::test
