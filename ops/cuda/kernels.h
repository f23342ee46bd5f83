// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"

struct CUstream_st;

namespace tandem::ops::cuda {

using device::Arithmetic;
using device::Bf16;
using Stream = CUstream_st*;

// Launches the kernels for the struct of an operation's arguments, which says what it computes, on the
// current GPU and `stream`. The launches may be captured in a CUDA graph. Returns the runtime's error
// (cudaError_t). For all operations except attention and single products; E is float, double or, except for
// routers and their probabilities, Bf16.
//
// Atomics add only whole numbers, whose order does not matter. `begins` and rows_there are read on the GPU,
// so grids are as large as the largest possible number of rows, and blocks without rows end at once. An index
// of an expert, rank or row outside its range counts as -1; embedding.h and cross_entropy.h say what an id or
// target outside the vocabulary does.
//
// A kernel is a function Launch(const Args<E>&, Stream) in the file of its operation, followed by
// TANDEM_KERNEL(Args).
template <typename Args>
int LaunchKernel(const Args& args, Stream stream);

#define TANDEM_STATISTICS_KERNEL(Args)                        \
  template <>                                                 \
  int LaunchKernel(const Args<float>& args, Stream stream) {  \
    return Launch(args, stream);                              \
  }                                                           \
  template <>                                                 \
  int LaunchKernel(const Args<double>& args, Stream stream) { \
    return Launch(args, stream);                              \
  }
#define TANDEM_KERNEL(Args)                                 \
  TANDEM_STATISTICS_KERNEL(Args)                            \
  template <>                                               \
  int LaunchKernel(const Args<Bf16>& args, Stream stream) { \
    return Launch(args, stream);                            \
  }

}  // namespace tandem::ops::cuda
