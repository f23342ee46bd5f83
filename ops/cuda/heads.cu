// SPDX-License-Identifier: Apache-2.0
// Norms of query and key heads, a warp a head; and the layout of latent attention's heads.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/block.cuh"
#include "ops/cuda/head_kernels.h"
#include "ops/row_work.h"

namespace tandem::ops::cuda {
namespace {

constexpr int kHeld = kMostNormedHeadDim / 32;  // elements of a head that a lane has

template <typename T>
__device__ T SumOfWarp(T value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xFFFFFFFF, value, lanes);
  return value;
}

template <typename E>
__global__ void HeadNormWarps(const E* qkv, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
                              const E* query_weight, const E* key_weight, Arithmetic<E> epsilon, E* normed) {
  using T = Arithmetic<E>;
  const int64_t all = heads + 2 * kv_heads;
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (number >= tokens * all) return;
  const int64_t head = number % all;
  const E* const x = qkv + number * head_dim;
  E* const y = normed + number * head_dim;
  const int64_t lane = threadIdx.x % 32;
  if (head >= heads + kv_heads) {
    for (int64_t i = lane; i < head_dim; i += 32) y[i] = x[i];
    return;
  }
  const E* const weight = head < heads ? query_weight : key_weight;
  T squares = 0;
  for (int64_t i = lane; i < head_dim; i += 32) squares += Widen(x[i]) * Widen(x[i]);
  const T r = 1 / sqrt(SumOfWarp(squares) / static_cast<T>(head_dim) + epsilon);
  for (int64_t i = lane; i < head_dim; i += 32) Narrow(Widen(x[i]) * r * Widen(weight[i]), y[i]);
}

// A block has every gridDim.x-th token, a warp of it every kWarps-th head. partial_sums: [blocks, 2
// head_dim], of the queries' and then of the keys' weight.
template <typename E, typename T>
__global__ void HeadNormBackwardTokens(const E* qkv, int64_t tokens, int64_t heads, int64_t kv_heads,
                                       int64_t head_dim, const E* query_weight, const E* key_weight,
                                       T epsilon, E* grad, T* partial_sums) {
  __shared__ T sums[kWarps][2 * kMostNormedHeadDim];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  T own[2][kHeld] = {};
  for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    for (int64_t head = warp; head < heads + kv_heads; head += kWarps) {
      const int64_t begin = (token * (heads + 2 * kv_heads) + head) * head_dim;
      const bool is_key = head >= heads;
      const E* const weight = is_key ? key_weight : query_weight;
      T x[kHeld] = {};
      T g[kHeld] = {};
      T w[kHeld] = {};
      T squares = 0;
      T dot = 0;
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const int i = lane + 32 * j;
        if (i >= head_dim) continue;
        x[j] = Widen(qkv[begin + i]);
        g[j] = Widen(grad[begin + i]);
        w[j] = Widen(weight[i]);
        squares += x[j] * x[j];
        dot += g[j] * x[j] * w[j];
      }
      squares = SumOfWarp(squares);
      dot = SumOfWarp(dot);
      const T r = 1 / sqrt(squares / static_cast<T>(head_dim) + epsilon);
      const T shrink = r * r * r * dot / static_cast<T>(head_dim);
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const int i = lane + 32 * j;
        if (i >= head_dim) continue;
        Narrow(g[j] * w[j] * r - x[j] * shrink, grad[begin + i]);
        own[0][j] += is_key ? T{0} : g[j] * x[j] * r;
        own[1][j] += is_key ? g[j] * x[j] * r : T{0};
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = lane + 32 * j;
    if (i >= head_dim) continue;
    sums[warp][i] = own[0][j];
    sums[warp][head_dim + i] = own[1][j];
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < 2 * head_dim; i += kThreads) {
    T sum = sums[0][i];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum += sums[w][i];
    partial_sums[blockIdx.x * 2 * head_dim + i] = sum;
  }
}

// A block adds up one column of the blocks' sums.
template <typename T>
__global__ void AddHeadSums(const T* partial_sums, int64_t blocks, int64_t head_dim, bool add,
                            T* grad_query_weight, T* grad_key_weight) {
  T sum = 0;
  for (int64_t block = threadIdx.x; block < blocks; block += kThreads) {
    sum += partial_sums[block * 2 * head_dim + blockIdx.x];
  }
  sum = BlockSum(sum);
  if (threadIdx.x > 0) return;
  T& to = blockIdx.x < head_dim ? grad_query_weight[blockIdx.x] : grad_key_weight[blockIdx.x - head_dim];
  to = add ? to + sum : sum;
}

// Where an element of a packed head comes from: of its content, or of its rotary part.
struct Source {
  bool rotary;
  int64_t index;
};
__device__ Source SourceOf(const LatentHeads& h, int64_t packed) {
  const int64_t half = (h.content + h.rotary) / 2;
  const int64_t turned = h.rotary / 2;
  const int64_t second = packed >= half;
  const int64_t i = packed - second * half;
  if (i < turned) return {true, 2 * i + second};
  return {false, i - turned + second * (half - turned)};
}

// The inverse.
__device__ int64_t OfContent(const LatentHeads& h, int64_t index) {
  const int64_t half = (h.content + h.rotary) / 2;
  const int64_t turned = h.rotary / 2;
  const int64_t rest = half - turned;
  return index < rest ? turned + index : half + turned + index - rest;
}
__device__ int64_t OfRotary(const LatentHeads& h, int64_t index) {
  return index / 2 + index % 2 * ((h.content + h.rotary) / 2);
}

template <typename E>
__global__ void PackElements(LatentHeads h, int64_t tokens, int64_t down_columns, const E* query,
                             const E* key_value, const E* down, E* qkv) {
  const int64_t d = h.content + h.rotary;
  TANDEM_EACH(i, tokens * 3 * h.heads * d) {
    const int64_t packed = i % d;
    const int64_t head = i / d % h.heads;
    const int64_t part = i / d / h.heads % 3;
    const int64_t token = i / d / h.heads / 3;
    const E* const kv = key_value + (token * h.heads + head) * (h.content + h.value);
    E value{};
    if (part == 2) {
      if (packed < h.value) value = kv[h.content + packed];
    } else {
      const Source source = SourceOf(h, packed);
      const E* const content = part == 0 ? query + (token * h.heads + head) * d : kv;
      const E* const rotary = part == 0 ? content + h.content : down + (token + 1) * down_columns - h.rotary;
      value = source.rotary ? rotary[source.index] : content[source.index];
    }
    qkv[i] = value;
  }
}

template <typename E>
__global__ void UnpackElements(LatentHeads h, int64_t tokens, int64_t down_columns, const E* grad_qkv,
                               E* grad_query, E* grad_key_value, E* grad_down) {
  const int64_t d = h.content + h.rotary;
  const int64_t queries = h.heads * d;
  const int64_t key_values = h.heads * (h.content + h.value);
  const int64_t of_a_token = queries + key_values + h.rotary;
  TANDEM_EACH(i, tokens * of_a_token) {
    const int64_t token = i / of_a_token;
    int64_t index = i % of_a_token;
    const E* const grads = grad_qkv + token * 3 * queries;
    if (index < queries) {
      const int64_t element = index % d;
      const int64_t packed = element < h.content ? OfContent(h, element) : OfRotary(h, element - h.content);
      grad_query[token * queries + index] = grads[index / d * d + packed];
      continue;
    }
    index -= queries;
    if (index < key_values) {
      const int64_t head = index / (h.content + h.value);
      const int64_t element = index % (h.content + h.value);
      grad_key_value[token * key_values + index] = element < h.content
                                                       ? grads[queries + head * d + OfContent(h, element)]
                                                       : grads[2 * queries + head * d + element - h.content];
      continue;
    }
    index -= key_values;
    Arithmetic<E> sum = 0;
    for (int64_t head = 0; head < h.heads; ++head)
      sum += Widen(grads[queries + head * d + OfRotary(h, index)]);
    Narrow(sum, grad_down[(token + 1) * down_columns - h.rotary + index]);
  }
}

}  // namespace

template <typename E>
int HeadNorm(const E* qkv, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
             const E* query_weight, const E* key_weight, double epsilon, E* normed, Stream stream) {
  const int64_t warps = tokens * (heads + 2 * kv_heads);
  if (warps == 0) return cudaSuccess;
  HeadNormWarps<<<static_cast<unsigned>((warps + kWarps - 1) / kWarps), kThreads, 0, stream>>>(
      qkv, tokens, heads, kv_heads, head_dim, query_weight, key_weight, static_cast<Arithmetic<E>>(epsilon),
      normed);
  return cudaGetLastError();
}

template <typename E>
int HeadNormBackward(const E* qkv, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
                     const E* query_weight, const E* key_weight, double epsilon, bool add_weights, E* grad,
                     Arithmetic<E>* grad_query_weight, Arithmetic<E>* grad_key_weight,
                     Arithmetic<E>* partial_sums, Stream stream) {
  if (head_dim > kMostNormedHeadDim) return cudaErrorInvalidValue;
  const int64_t blocks = std::min(tokens, kNormGroups);
  if (blocks > 0) {
    HeadNormBackwardTokens<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
        qkv, tokens, heads, kv_heads, head_dim, query_weight, key_weight, static_cast<Arithmetic<E>>(epsilon),
        grad, partial_sums);
  }
  AddHeadSums<<<static_cast<unsigned>(2 * head_dim), kThreads, 0, stream>>>(
      partial_sums, blocks, head_dim, add_weights, grad_query_weight, grad_key_weight);
  return cudaGetLastError();
}

template <typename E>
int PackLatentHeads(const LatentHeads& heads, int64_t tokens, int64_t down_columns, const E* query,
                    const E* key_value, const E* down, E* qkv, Stream stream) {
  const int64_t elements = tokens * 3 * heads.heads * heads.head_dim();
  if (elements == 0) return cudaSuccess;
  PackElements<<<Blocks(elements), kThreads, 0, stream>>>(heads, tokens, down_columns, query, key_value, down,
                                                          qkv);
  return cudaGetLastError();
}

template <typename E>
int UnpackLatentHeads(const LatentHeads& heads, int64_t tokens, int64_t down_columns, const E* grad_qkv,
                      E* grad_query, E* grad_key_value, E* grad_down, Stream stream) {
  const int64_t elements =
      tokens * (heads.heads * (heads.head_dim() + heads.content + heads.value) + heads.rotary);
  if (elements == 0) return cudaSuccess;
  UnpackElements<<<Blocks(elements), kThreads, 0, stream>>>(heads, tokens, down_columns, grad_qkv, grad_query,
                                                            grad_key_value, grad_down);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(E)                                                                             \
  template int HeadNorm(const E*, int64_t, int64_t, int64_t, int64_t, const E*, const E*, double, E*,     \
                        Stream);                                                                          \
  template int HeadNormBackward(const E*, int64_t, int64_t, int64_t, int64_t, const E*, const E*, double, \
                                bool, E*, Arithmetic<E>*, Arithmetic<E>*, Arithmetic<E>*, Stream);        \
  template int PackLatentHeads(const LatentHeads&, int64_t, int64_t, const E*, const E*, const E*, E*,    \
                               Stream);                                                                   \
  template int UnpackLatentHeads(const LatentHeads&, int64_t, int64_t, const E*, E*, E*, E*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
TANDEM_INSTANTIATE(Bf16)

}  // namespace tandem::ops::cuda
