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

template <typename E>
__global__ void EmbeddingRow(Tokens tokens, const E* weight, int64_t vocabulary, int64_t columns, E* output) {
  const int64_t id = IdOf(tokens, blockIdx.x);
  const bool inside = id >= 0 && id < vocabulary;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    if (inside) {
      output[blockIdx.x * columns + i] = weight[id * columns + i];
    } else {
      Narrow(NotANumber<Arithmetic<E>>(), output[blockIdx.x * columns + i]);
    }
  }
}

constexpr int kSums = 16;  // columns that a thread adds up at a time

// The block of id `blockIdx.x`: the tokens come through shared memory, kThreads at a time.
template <typename E, typename G>
__global__ void EmbeddingBackwardRow(Tokens tokens, const E* grad_output, bool add, int64_t columns,
                                     G* grad_weight) {
  __shared__ int64_t ids[kThreads];
  G* const row = grad_weight + blockIdx.x * columns;
  const int64_t size = tokens.sequences * tokens.length;
  for (int64_t first = threadIdx.x; first - threadIdx.x < columns; first += kThreads * kSums) {
    Arithmetic<E> sums[kSums];
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      const int64_t i = first + k * kThreads;
      sums[k] = add && i < columns ? Widen(row[i]) : 0;
    }
    for (int64_t begin = 0; begin < size; begin += kThreads) {
      __syncthreads();
      const int64_t mine = begin + threadIdx.x;
      ids[threadIdx.x] = mine < size ? IdOf(tokens, mine) : -1;
      __syncthreads();
      const int64_t count = size - begin < kThreads ? size - begin : kThreads;
      for (int64_t token = 0; token < count; ++token) {
        if (ids[token] != blockIdx.x) continue;
#pragma unroll
        for (int k = 0; k < kSums; ++k) {
          const int64_t i = first + k * kThreads;
          if (i < columns) sums[k] += Widen(grad_output[(begin + token) * columns + i]);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      const int64_t i = first + k * kThreads;
      if (i < columns) Narrow(sums[k], row[i]);
    }
  }
}

template <typename E, typename T>
__global__ void LogSumExpRow(const E* logits, int64_t columns, T* lse) {
  logits += blockIdx.x * columns;
  const T row_lse = BlockLogSumExp(logits, columns);
  if (threadIdx.x == 0) lse[blockIdx.x] = row_lse;
}

template <typename E, typename T>
__global__ void MeanLoss(const E* logits, Tokens targets, int64_t columns, const T* lse, double* loss) {
  const int64_t rows = targets.sequences * targets.length;
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) {
    const int64_t id = IdOf(targets, row);
    sum += id >= 0 && id < columns
               ? static_cast<double>(lse[row]) - static_cast<double>(Widen(logits[row * columns + id]))
               : NotANumber<double>();
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *loss = sum / static_cast<double>(rows);
}

template <typename E, typename T>
__global__ void CrossEntropyBackwardRow(const E* logits, Tokens targets, const T* lse, int64_t columns,
                                        T scale, E* grad_logits) {
  const int64_t begin = blockIdx.x * columns;
  const int64_t id = IdOf(targets, blockIdx.x);
  const T row_lse = lse[blockIdx.x];
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const T probability = exp(Widen(logits[begin + i]) - row_lse) * scale;
    Narrow(i == id ? probability - scale : probability, grad_logits[begin + i]);
  }
}

}  // namespace

template <typename E>
int Embedding(const Tokens& tokens, const E* weight, int64_t vocabulary, int64_t columns, E* output,
              Stream stream) {
  EmbeddingRow<<<static_cast<unsigned>(tokens.sequences * tokens.length), kThreads, 0, stream>>>(
      tokens, weight, vocabulary, columns, output);
  return cudaGetLastError();
}

template <typename E, typename G>
int EmbeddingBackward(const Tokens& tokens, const E* grad_output, bool add, int64_t vocabulary,
                      int64_t columns, G* grad_weight, Stream stream) {
  EmbeddingBackwardRow<<<static_cast<unsigned>(vocabulary), kThreads, 0, stream>>>(tokens, grad_output, add,
                                                                                   columns, grad_weight);
  return cudaGetLastError();
}

template <typename E, typename T>
int CrossEntropy(const E* logits, const Tokens& targets, int64_t columns, T* lse, double* loss,
                 Stream stream) {
  LogSumExpRow<<<static_cast<unsigned>(targets.sequences * targets.length), kThreads, 0, stream>>>(
      logits, columns, lse);
  MeanLoss<<<1, kThreads, 0, stream>>>(logits, targets, columns, lse, loss);
  return cudaGetLastError();
}

template <typename E, typename T>
int CrossEntropyBackward(const E* logits, const Tokens& targets, const T* lse, int64_t columns,
                         E* grad_logits, Stream stream) {
  const int64_t rows = targets.sequences * targets.length;
  CrossEntropyBackwardRow<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      logits, targets, lse, columns, static_cast<T>(1.0 / static_cast<double>(rows)), grad_logits);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(E)                                                                              \
  template int Embedding(const Tokens&, const E*, int64_t, int64_t, E*, Stream);                           \
  template int EmbeddingBackward(const Tokens&, const E*, bool, int64_t, int64_t, Arithmetic<E>*, Stream); \
  template int CrossEntropy(const E*, const Tokens&, int64_t, Arithmetic<E>*, double*, Stream);            \
  template int CrossEntropyBackward(const E*, const Tokens&, const Arithmetic<E>*, int64_t, E*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
TANDEM_INSTANTIATE(Bf16)
template int EmbeddingBackward(const Tokens&, const Bf16*, bool, int64_t, int64_t, Bf16*, Stream);

}  // namespace tandem::ops::cuda
