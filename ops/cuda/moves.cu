// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"
#include "ops/moves.h"
#include "ops/window_starts.h"

namespace tandem::ops::cuda {
namespace {

constexpr int kMoveThreads = 256;
constexpr int64_t kMostMoveBlocks = 4096;  // beyond it, each block takes further elements

int MoveBlocks(int64_t elements) {
  return static_cast<int>(std::min(kMostMoveBlocks, (elements + kMoveThreads - 1) / kMoveThreads));
}

__device__ inline int64_t FirstMove() { return blockIdx.x * int64_t{kMoveThreads} + threadIdx.x; }
__device__ inline int64_t MovesAtOnce() { return int64_t{gridDim.x} * kMoveThreads; }

template <typename From, typename To>
__device__ To Converted(From x) {
  if constexpr (std::is_integral_v<From>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (std::is_same_v<To, Bf16>) {
    Bf16 rounded;
    Narrow(static_cast<float>(x), rounded);
    return rounded;
  } else {
    return static_cast<To>(Widen(x));
  }
}

template <typename From, typename To>
__global__ void CopyElements(const From* from, int64_t from_stride, int64_t rows, int64_t columns, To* to,
                             int64_t to_stride) {
  for (int64_t i = FirstMove(); i < rows * columns; i += MovesAtOnce()) {
    const int64_t row = i / columns;
    const int64_t column = i - row * columns;
    to[row * to_stride + column] = Converted<From, To>(from[row * from_stride + column]);
  }
}

template <typename E, int N>
__global__ void AddPacks(const E* x, int64_t packs, E* y) {
  using T = Arithmetic<E>;
  for (int64_t i = FirstMove(); i < packs; i += MovesAtOnce()) {
    const Pack<E, N> added = PackAt<E, N>(x, i);
    Pack<E, N> sum = PackAt<E, N>(y, i);
    T terms[N];
    T sums[N];
    Widen(added, terms);
    Widen(sum, sums);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums[k] += terms[k];
    }
    Narrow<E, N>(sums, sum);
    SetPack(y, i, sum);
  }
}

__global__ void FindWindowStarts(WindowStartsArgs args) {
  for (int64_t i = FirstMove(); i < args.sequences * args.length; i += MovesAtOnce()) {
    args.starts[i] = WindowStart(args, i / args.length, i % args.length);
  }
}

template <typename From, typename To>
int StartCopy(const CopyArgs& args, Stream stream) {
  CopyElements<<<MoveBlocks(args.rows * args.columns), kMoveThreads, 0, stream>>>(
      static_cast<const From*>(args.from), args.from_stride, args.rows, args.columns,
      static_cast<To*>(args.to), args.to_stride);
  return cudaGetLastError();
}

template <typename From>
int StartCopyFrom(const CopyArgs& args, Stream stream) {
  switch (args.to_type) {
    case ElementKind::kFloat:
      return StartCopy<From, float>(args, stream);
    case ElementKind::kDouble:
      return StartCopy<From, double>(args, stream);
    case ElementKind::kBf16:
      return StartCopy<From, Bf16>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

template <>
int LaunchKernel(const CopyArgs& args, Stream stream) {
  if (args.rows * args.columns == 0) {
    return cudaSuccess;
  }
  const bool whole = args.from_stride == args.columns && args.to_stride == args.columns;
  if (args.from_type == args.to_type && (args.with_host || whole)) {
    const size_t bytes = static_cast<size_t>(args.rows * args.columns * BytesOf(args.to_type));
    return cudaMemcpyAsync(args.to, args.from, bytes, cudaMemcpyDefault, stream);
  }
  switch (args.from_type) {
    case ElementKind::kFloat:
      return StartCopyFrom<float>(args, stream);
    case ElementKind::kDouble:
      return StartCopyFrom<double>(args, stream);
    case ElementKind::kBf16:
      return StartCopyFrom<Bf16>(args, stream);
    case ElementKind::kInt64:
      return StartCopy<int64_t, int64_t>(args, stream);
    default:
      return StartCopy<uint8_t, uint8_t>(args, stream);
  }
}

int CopyStarts(const DocumentStarts& documents, int64_t sequences, int64_t length, int32_t* to,
               Stream stream) {
  CopyElements<<<MoveBlocks(sequences * length), kMoveThreads, 0, stream>>>(
      documents.starts, documents.stride, sequences, length, to, length);
  return cudaGetLastError();
}

template <typename E>
int Launch(const AddArgs<E>& args, Stream stream) {
  if (args.elements == 0) {
    return cudaSuccess;
  }
  WithPacks<E>({args.elements}, {args.x, args.y}, [&](auto packed) {
    constexpr int kSize = decltype(packed)::kSize;
    const int64_t packs = args.elements / kSize;
    AddPacks<E, kSize><<<MoveBlocks(packs), kMoveThreads, 0, stream>>>(args.x, packs, args.y);
  });
  return cudaGetLastError();
}
TANDEM_KERNEL(AddArgs)

template <>
int LaunchKernel(const WindowStartsArgs& args, Stream stream) {
  if (args.sequences * args.length == 0) {
    return cudaSuccess;
  }
  FindWindowStarts<<<MoveBlocks(args.sequences * args.length), kMoveThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <>
int LaunchKernel(const FillArgs& args, Stream stream) {
  return args.bytes == 0 ? cudaSuccess
                         : cudaMemsetAsync(args.to, args.byte, static_cast<size_t>(args.bytes), stream);
}

}  // namespace tandem::ops::cuda
