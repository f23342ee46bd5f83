// SPDX-License-Identifier: Apache-2.0
// The softmax of causal attention. A block has one row of scores.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/blocked_attention.h"

namespace tandem::ops::cuda {
namespace {

// The row of a block: its begin, the columns that it reads, and the place of its lse.
struct Row {
  __device__ explicit Row(const ScoreBlock& block) {
    const int64_t i = blockIdx.x % block.rows;
    begin = blockIdx.x * block.columns;
    first = block.starts == nullptr ? 0 : block.starts[i];
    end = block.columns - block.rows + i + 1;
    lse = blockIdx.x / block.rows * block.lse_stride + end - 1;
  }
  __device__ bool Reads(int64_t column) const { return first <= column && column < end; }
  int64_t begin;
  int64_t first;
  int64_t end;
  int64_t lse;
};

template <typename T>
__device__ void WriteProbabilities(const Row& row, int64_t columns, T lse, T* scores) {
  T* const s = scores + row.begin;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    s[i] = row.Reads(i) ? exp(s[i] - lse) : T{0};
  }
}

template <typename T>
__global__ void CausalSoftmaxRow(ScoreBlock block, T* scores, T* lse) {
  const Row row(block);
  const T row_lse = BlockLogSumExp<1>(scores + row.begin + row.first, row.end - row.first);
  WriteProbabilities(row, block.columns, row_lse, scores);
  if (threadIdx.x == 0) {
    lse[row.lse] = row_lse;
  }
}

template <typename T>
__global__ void CausalProbabilitiesRow(ScoreBlock block, const T* lse, T* scores) {
  const Row row(block);
  WriteProbabilities(row, block.columns, lse[row.lse], scores);
}

template <typename T>
__global__ void SoftmaxBackwardRow(ScoreBlock block, const T* probabilities, T* grad) {
  const Row row(block);
  const T* const p = probabilities + row.begin;
  T* const g = grad + row.begin;
  T sum = 0;
  for (int64_t i = row.first + threadIdx.x; i < row.end; i += kThreads) {
    sum += p[i] * g[i];
  }
  sum = BlockSum(sum);
  for (int64_t i = threadIdx.x; i < block.columns; i += kThreads) {
    g[i] = row.Reads(i) ? p[i] * (g[i] - sum) : T{0};
  }
}

unsigned RowsOf(const ScoreBlock& block) { return static_cast<unsigned>(block.heads * block.rows); }

}  // namespace

template <typename T>
int CausalSoftmax(const ScoreBlock& block, T* scores, T* lse, Stream stream) {
  CausalSoftmaxRow<<<RowsOf(block), kThreads, 0, stream>>>(block, scores, lse);
  return cudaGetLastError();
}

template <typename T>
int CausalProbabilities(const ScoreBlock& block, const T* lse, T* scores, Stream stream) {
  CausalProbabilitiesRow<<<RowsOf(block), kThreads, 0, stream>>>(block, lse, scores);
  return cudaGetLastError();
}

template <typename T>
int SoftmaxBackward(const ScoreBlock& block, const T* probabilities, T* grad, Stream stream) {
  SoftmaxBackwardRow<<<RowsOf(block), kThreads, 0, stream>>>(block, probabilities, grad);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T)                                                \
  template int CausalSoftmax(const ScoreBlock&, T*, T*, Stream);             \
  template int CausalProbabilities(const ScoreBlock&, const T*, T*, Stream); \
  template int SoftmaxBackward(const ScoreBlock&, const T*, T*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)

}  // namespace tandem::ops::cuda
