// What reads token ids: embedding and cross-entropy.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"

namespace tandem::ops::cuda {
namespace {

__device__ int64_t IdOf(const Tokens& tokens, int64_t row) {
  return tokens.ids[row / tokens.length * tokens.stride + row % tokens.length];
}

template <typename T>
__device__ T NotANumber() {
  return static_cast<T>(nan(""));
}

template <typename T>
__global__ void EmbeddingRow(Tokens tokens, const T* weight, int64_t vocabulary, int64_t columns, T* output) {
  const int64_t id = IdOf(tokens, blockIdx.x);
  const bool inside = id >= 0 && id < vocabulary;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    output[blockIdx.x * columns + i] = inside ? weight[id * columns + i] : NotANumber<T>();
  }
}

// The block of id `blockIdx.x`: the tokens come through shared memory, kThreads at a time.
template <typename T>
__global__ void EmbeddingBackwardRow(Tokens tokens, const T* grad_output, bool add, int64_t columns,
                                     T* grad_weight) {
  __shared__ int64_t ids[kThreads];
  T* const row = grad_weight + blockIdx.x * columns;
  if (!add) {
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) row[i] = 0;
  }
  const int64_t size = tokens.sequences * tokens.length;
  for (int64_t begin = 0; begin < size; begin += kThreads) {
    __syncthreads();
    const int64_t mine = begin + threadIdx.x;
    ids[threadIdx.x] = mine < size ? IdOf(tokens, mine) : -1;
    __syncthreads();
    const int64_t count = size - begin < kThreads ? size - begin : kThreads;
    for (int64_t k = 0; k < count; ++k) {
      if (ids[k] != blockIdx.x) continue;
      for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
        row[i] += grad_output[(begin + k) * columns + i];
      }
    }
  }
}

template <typename T>
__global__ void LogSumExpRow(const T* logits, int64_t columns, T* lse) {
  logits += blockIdx.x * columns;
  const T row_lse = BlockLogSumExp(logits, columns);
  if (threadIdx.x == 0) lse[blockIdx.x] = row_lse;
}

template <typename T>
__global__ void MeanLoss(const T* logits, Tokens targets, int64_t columns, const T* lse, double* loss) {
  const int64_t rows = targets.sequences * targets.length;
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) {
    const int64_t id = IdOf(targets, row);
    sum += id >= 0 && id < columns
               ? static_cast<double>(lse[row]) - static_cast<double>(logits[row * columns + id])
               : NotANumber<double>();
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *loss = sum / static_cast<double>(rows);
}

template <typename T>
__global__ void CrossEntropyBackwardRow(const T* logits, Tokens targets, const T* lse, int64_t columns,
                                        T scale, T* grad_logits) {
  const int64_t begin = blockIdx.x * columns;
  const int64_t id = IdOf(targets, blockIdx.x);
  const T row_lse = lse[blockIdx.x];
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const T probability = exp(logits[begin + i] - row_lse) * scale;
    grad_logits[begin + i] = i == id ? probability - scale : probability;
  }
}

}  // namespace

template <typename T>
int Embedding(const Tokens& tokens, const T* weight, int64_t vocabulary, int64_t columns, T* output,
              Stream stream) {
  EmbeddingRow<<<static_cast<unsigned>(tokens.sequences * tokens.length), kThreads, 0, stream>>>(
      tokens, weight, vocabulary, columns, output);
  return cudaGetLastError();
}

template <typename T>
int EmbeddingBackward(const Tokens& tokens, const T* grad_output, bool add, int64_t vocabulary,
                      int64_t columns, T* grad_weight, Stream stream) {
  EmbeddingBackwardRow<<<static_cast<unsigned>(vocabulary), kThreads, 0, stream>>>(tokens, grad_output, add,
                                                                                   columns, grad_weight);
  return cudaGetLastError();
}

template <typename T>
int CrossEntropy(const T* logits, const Tokens& targets, int64_t columns, T* lse, double* loss,
                 Stream stream) {
  LogSumExpRow<<<static_cast<unsigned>(targets.sequences * targets.length), kThreads, 0, stream>>>(
      logits, columns, lse);
  MeanLoss<<<1, kThreads, 0, stream>>>(logits, targets, columns, lse, loss);
  return cudaGetLastError();
}

template <typename T>
int CrossEntropyBackward(const T* logits, const Tokens& targets, const T* lse, int64_t columns,
                         T* grad_logits, Stream stream) {
  const int64_t rows = targets.sequences * targets.length;
  CrossEntropyBackwardRow<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      logits, targets, lse, columns, static_cast<T>(1.0 / static_cast<double>(rows)), grad_logits);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T)                                                                  \
  template int Embedding(const Tokens&, const T*, int64_t, int64_t, T*, Stream);               \
  template int EmbeddingBackward(const Tokens&, const T*, bool, int64_t, int64_t, T*, Stream); \
  template int CrossEntropy(const T*, const Tokens&, int64_t, T*, double*, Stream);            \
  template int CrossEntropyBackward(const T*, const Tokens&, const T*, int64_t, T*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)

}  // namespace tandem::ops::cuda
