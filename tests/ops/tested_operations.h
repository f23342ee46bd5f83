// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/operations.h"
#ifdef TANDEM_TESTS_ON_GPU
#include "ops/cuda/operations.h"
#endif

namespace tandem::ops::test {

// For tests of every kind of device: on the CPU in tandem_ops_test, and in tandem_cuda_test, which defines
// TANDEM_TESTS_ON_GPU, on the GPU.
inline const Operations& Tested() {
#ifdef TANDEM_TESTS_ON_GPU
  return CudaOperations();
#else
  return CpuOperations();
#endif
}

}  // namespace tandem::ops::test
