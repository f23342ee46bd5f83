// SPDX-License-Identifier: Apache-2.0
// The softmax of causal attention, one block a row of scores.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"

namespace tandem::ops::cuda {
namespace {

template <typename T>
__global__ void CausalSoftmaxRow(int64_t length, T* scores, T* lse) {
  T* const row = scores + blockIdx.x * length;
  const int64_t columns = blockIdx.x % length + 1;
  const T row_lse = BlockLogSumExp(row, columns);
  for (int64_t i = threadIdx.x; i < length; i += kThreads) {
    row[i] = i < columns ? exp(row[i] - row_lse) : T{0};
  }
  if (threadIdx.x == 0) lse[blockIdx.x] = row_lse;
}

template <typename T>
__global__ void CausalProbabilitiesRow(int64_t length, const T* lse, T* scores) {
  T* const row = scores + blockIdx.x * length;
  const int64_t columns = blockIdx.x % length + 1;
  const T row_lse = lse[blockIdx.x];
  for (int64_t i = threadIdx.x; i < length; i += kThreads) {
    row[i] = i < columns ? exp(row[i] - row_lse) : T{0};
  }
}

template <typename T>
__global__ void SoftmaxBackwardRow(int64_t length, const T* probabilities, T* grad) {
  const T* const p = probabilities + blockIdx.x * length;
  T* const g = grad + blockIdx.x * length;
  const int64_t columns = blockIdx.x % length + 1;
  T sum = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) sum += p[i] * g[i];
  sum = BlockSum(sum);
  for (int64_t i = threadIdx.x; i < length; i += kThreads) {
    g[i] = i < columns ? p[i] * (g[i] - sum) : T{0};
  }
}

}  // namespace

template <typename T>
int CausalSoftmax(int64_t heads, int64_t length, T* scores, T* lse, Stream stream) {
  CausalSoftmaxRow<<<static_cast<unsigned>(heads * length), kThreads, 0, stream>>>(length, scores, lse);
  return cudaGetLastError();
}

template <typename T>
int CausalProbabilities(int64_t heads, int64_t length, const T* lse, T* scores, Stream stream) {
  CausalProbabilitiesRow<<<static_cast<unsigned>(heads * length), kThreads, 0, stream>>>(length, lse, scores);
  return cudaGetLastError();
}

template <typename T>
int SoftmaxBackward(int64_t heads, int64_t length, const T* probabilities, T* grad, Stream stream) {
  SoftmaxBackwardRow<<<static_cast<unsigned>(heads * length), kThreads, 0, stream>>>(length, probabilities,
                                                                                     grad);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T)                                               \
  template int CausalSoftmax(int64_t, int64_t, T*, T*, Stream);             \
  template int CausalProbabilities(int64_t, int64_t, const T*, T*, Stream); \
  template int SoftmaxBackward(int64_t, int64_t, const T*, T*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)

}  // namespace tandem::ops::cuda
