// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::device {

// Returns LibTorch's current stream of GPU `index`; -1 is this thread's current GPU. Within Stream::Enqueue
// this is the stream whose work is being issued, elsewhere the GPU's default stream.
cudaStream_t CurrentCudaStream(int index = -1);

// Makes GPU `index` this thread's current GPU until the end of the scope. Then the previous GPU is made
// current again, but only if it has a context: making it current would otherwise create one, of some 500 MB,
// on a GPU that is not used.
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
