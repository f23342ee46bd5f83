// SPDX-License-Identifier: Apache-2.0
// Biases of queries, keys and values. A thread has a column of every so many rows.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/qkv_bias.h"
#include "ops/row_work.h"

namespace tandem::ops::cuda {
namespace {

dim3 ColumnBlocks(int64_t columns, int64_t groups) {
  return {static_cast<unsigned>((columns + kThreads - 1) / kThreads), static_cast<unsigned>(groups)};
}

template <typename E>
__global__ void AddQkvBias(QkvBiasArgs<E> args) {
  const int64_t columns = args.query + 2 * args.key;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) {
    return;
  }
  const int64_t of_keys = column - args.query;
  const E* const bias = of_keys < 0          ? args.query_bias + column
                        : of_keys < args.key ? args.key_bias + of_keys
                                             : args.value_bias + (of_keys - args.key);
  const Arithmetic<E> added = Widen(*bias);
  for (int64_t row = blockIdx.y; row < args.tokens; row += gridDim.y) {
    E& element = args.qkv[row * columns + column];
    Narrow(Widen(element) + added, element);
  }
}

// partial_sums: [groups, columns].
template <typename E, typename T = Arithmetic<E>>
__global__ void AddRowsOfGroups(const E* rows, int64_t tokens, int64_t columns, T* partial_sums) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) {
    return;
  }
  T sum = 0;
#pragma unroll 4
  for (int64_t row = blockIdx.y; row < tokens; row += gridDim.y) {
    sum += Widen(rows[row * columns + column]);
  }
  partial_sums[blockIdx.y * columns + column] = sum;
}

}  // namespace

template <typename E>
int Launch(const QkvBiasArgs<E>& args, Stream stream) {
  const int64_t columns = args.query + 2 * args.key;
  if (args.tokens == 0 || columns == 0) {
    return cudaSuccess;
  }
  AddQkvBias<<<ColumnBlocks(columns, std::min(args.tokens, kNormGroups)), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}
TANDEM_KERNEL(QkvBiasArgs)

template <typename E>
int Launch(const QkvBiasBackwardArgs<E>& args, Stream stream) {
  const int64_t columns = args.query + 2 * args.key;
  const int64_t groups = std::min(args.tokens, kNormGroups);
  auto* const partial_sums = static_cast<Arithmetic<E>*>(args.work.begin);
  if (groups > 0 && columns > 0) {
    AddRowsOfGroups<<<ColumnBlocks(columns, groups), kThreads, 0, stream>>>(args.grad, args.tokens, columns,
                                                                            partial_sums);
  }
  const auto add_up = [&](int64_t first, int64_t count, Arithmetic<E>* sums) {
    if (count > 0) {
      AddPartialSums<<<PartialSumBlocks(count), kThreads, 0, stream>>>(partial_sums + first, columns, groups,
                                                                       count, args.add, sums);
    }
  };
  add_up(0, args.query, args.grad_query_bias);
  add_up(args.query, args.key, args.grad_key_bias);
  add_up(args.query + args.key, args.key, args.grad_value_bias);
  return cudaGetLastError();
}
TANDEM_KERNEL(QkvBiasBackwardArgs)

}  // namespace tandem::ops::cuda
