// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::device {

// The stream of GPU `index` whose work this thread runs or issues (Stream::Enqueue), which is LibTorch's
// current stream; outside of streams the GPU's default stream. Without an index: of this thread's current
// GPU.
cudaStream_t CurrentCudaStream(int index = -1);

// Makes GPU `index` this thread's current one until the end of the scope. The GPU before it is made current
// again if it has a context: otherwise this would make one, of some 500 MB, on a GPU that no work was for.
class CudaGuard {
 public:
  explicit CudaGuard(int index);
  ~CudaGuard();
  CudaGuard(const CudaGuard&) = delete;
  CudaGuard& operator=(const CudaGuard&) = delete;

 private:
  const int index_;
  int before_ = 0;
};

}  // namespace tandem::device
