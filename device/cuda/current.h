// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::device {

// The stream of GPU `index` whose work this thread runs or issues (Stream::Enqueue), which is LibTorch's
// current stream; outside of streams the GPU's default stream. Without an index: of this thread's current
// GPU.
cudaStream_t CurrentCudaStream(int index = -1);

// Makes GPU `index` this thread's current one until the end of the scope.
class CudaGuard {
 public:
  explicit CudaGuard(int index) : index_(index) {
    cudaGetDevice(&before_);
    Set(index_, before_);
  }
  ~CudaGuard() { Set(before_, index_); }
  CudaGuard(const CudaGuard&) = delete;
  CudaGuard& operator=(const CudaGuard&) = delete;

 private:
  static void Set(int index, int current) {
    if (index != current) {
      cudaSetDevice(index);
    }
  }

  const int index_;
  int before_ = 0;
};

}  // namespace tandem::device
