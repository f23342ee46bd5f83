// SPDX-License-Identifier: Apache-2.0
// Norms of query and key heads, a warp a head; and the layout of latent attention's heads.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/warp.cuh"
#include "ops/row_work.h"

namespace tandem::ops::cuda {
namespace {

constexpr int kHeld = kMostGpuNormedHeadDim / 32;  // elements of a head that a lane has

template <typename E>
__global__ void HeadNormWarps(HeadNormArgs<E> args) {
  using T = Arithmetic<E>;
  const int64_t head_dim = args.head_dim;
  const int64_t all = args.heads + 2 * args.kv_heads;
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (number >= args.tokens * all) {
    return;
  }
  const int64_t head = number % all;
  const E* const x = args.qkv + number * head_dim;
  E* const y = args.normed + number * head_dim;
  const int64_t lane = threadIdx.x % 32;
  if (head >= args.heads + args.kv_heads) {
    for (int64_t i = lane; i < head_dim; i += 32) {
      y[i] = x[i];
    }
    return;
  }
  const E* const weight = head < args.heads ? args.query_weight : args.key_weight;
  T squares = 0;
  for (int64_t i = lane; i < head_dim; i += 32) {
    squares += Widen(x[i]) * Widen(x[i]);
  }
  const T r = 1 / sqrt(WarpSum(squares) / static_cast<T>(head_dim) + static_cast<T>(args.epsilon));
  for (int64_t i = lane; i < head_dim; i += 32) {
    Narrow(Widen(x[i]) * r * Widen(weight[i]), y[i]);
  }
}

// A block has every gridDim.x-th token, a warp of it every kWarps-th head. partial_sums: [blocks, 2
// head_dim], of the queries' and then of the keys' weight.
template <typename E, typename T = Arithmetic<E>>
__global__ void HeadNormBackwardTokens(HeadNormBackwardArgs<E> args, T* partial_sums) {
  __shared__ T sums[kWarps][2 * kMostGpuNormedHeadDim];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t head_dim = args.head_dim;
  T own[2][kHeld] = {};
  for (int64_t token = blockIdx.x; token < args.tokens; token += gridDim.x) {
    for (int64_t head = warp; head < args.heads + args.kv_heads; head += kWarps) {
      const int64_t begin = (token * (args.heads + 2 * args.kv_heads) + head) * head_dim;
      const bool is_key = head >= args.heads;
      const E* const weight = is_key ? args.key_weight : args.query_weight;
      T x[kHeld] = {};
      T g[kHeld] = {};
      T w[kHeld] = {};
      T squares = 0;
      T dot = 0;
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const int i = lane + 32 * j;
        if (i >= head_dim) {
          continue;
        }
        x[j] = Widen(args.qkv[begin + i]);
        g[j] = Widen(args.grad[begin + i]);
        w[j] = Widen(weight[i]);
        squares += x[j] * x[j];
        dot += g[j] * x[j] * w[j];
      }
      squares = WarpSum(squares);
      dot = WarpSum(dot);
      const T r = 1 / sqrt(squares / static_cast<T>(head_dim) + static_cast<T>(args.epsilon));
      const T shrink = r * r * r * dot / static_cast<T>(head_dim);
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        const int i = lane + 32 * j;
        if (i >= head_dim) {
          continue;
        }
        Narrow(g[j] * w[j] * r - x[j] * shrink, args.grad[begin + i]);
        own[0][j] += is_key ? T{0} : g[j] * x[j] * r;
        own[1][j] += is_key ? g[j] * x[j] * r : T{0};
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = lane + 32 * j;
    if (i >= head_dim) {
      continue;
    }
    sums[warp][i] = own[0][j];
    sums[warp][head_dim + i] = own[1][j];
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < 2 * head_dim; i += kThreads) {
    T sum = sums[0][i];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      sum += sums[w][i];
    }
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
  if (threadIdx.x > 0) {
    return;
  }
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
  if (i < turned) {
    return {true, 2 * i + second};
  }
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
__global__ void PackElements(PackLatentHeadsArgs<E> args) {
  const LatentHeads& h = args.heads;
  const int64_t d = h.content + h.rotary;
  TANDEM_EACH(i, args.tokens * 3 * h.heads * d) {
    const int64_t packed = i % d;
    const int64_t head = i / d % h.heads;
    const int64_t part = i / d / h.heads % 3;
    const int64_t token = i / d / h.heads / 3;
    const E* const kv = args.key_value + (token * h.heads + head) * (h.content + h.value);
    E value{};
    if (part == 2) {
      if (packed < h.value) {
        value = kv[h.content + packed];
      }
    } else {
      const Source source = SourceOf(h, packed);
      const E* const content = part == 0 ? args.query + (token * h.heads + head) * d : kv;
      const E* const rotary =
          part == 0 ? content + h.content : args.down + (token + 1) * args.down_columns - h.rotary;
      value = source.rotary ? rotary[source.index] : content[source.index];
    }
    args.qkv[i] = value;
  }
}

template <typename E>
__global__ void UnpackElements(UnpackLatentHeadsArgs<E> args) {
  const LatentHeads& h = args.heads;
  const int64_t d = h.content + h.rotary;
  const int64_t queries = h.heads * d;
  const int64_t key_values = h.heads * (h.content + h.value);
  const int64_t of_a_token = queries + key_values + h.rotary;
  TANDEM_EACH(i, args.tokens * of_a_token) {
    const int64_t token = i / of_a_token;
    int64_t index = i % of_a_token;
    const E* const grads = args.grad_qkv + token * 3 * queries;
    if (index < queries) {
      const int64_t element = index % d;
      const int64_t packed = element < h.content ? OfContent(h, element) : OfRotary(h, element - h.content);
      args.grad_query[token * queries + index] = grads[index / d * d + packed];
      continue;
    }
    index -= queries;
    if (index < key_values) {
      const int64_t head = index / (h.content + h.value);
      const int64_t element = index % (h.content + h.value);
      args.grad_key_value[token * key_values + index] =
          element < h.content ? grads[queries + head * d + OfContent(h, element)]
                              : grads[2 * queries + head * d + element - h.content];
      continue;
    }
    index -= key_values;
    Arithmetic<E> sum = 0;
    for (int64_t head = 0; head < h.heads; ++head) {
      sum += Widen(grads[queries + head * d + OfRotary(h, index)]);
    }
    Narrow(sum, args.grad_down[(token + 1) * args.down_columns - h.rotary + index]);
  }
}

}  // namespace

template <typename E>
int Launch(const HeadNormArgs<E>& args, Stream stream) {
  const int64_t warps = args.tokens * (args.heads + 2 * args.kv_heads);
  if (warps == 0) {
    return cudaSuccess;
  }
  HeadNormWarps<<<static_cast<unsigned>((warps + kWarps - 1) / kWarps), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}
TANDEM_KERNEL(HeadNormArgs)

template <typename E>
int Launch(const HeadNormBackwardArgs<E>& args, Stream stream) {
  auto* const partial_sums = static_cast<Arithmetic<E>*>(args.work.begin);
  const int64_t blocks = std::min(args.tokens, kHeadNormGroups);
  if (blocks > 0) {
    HeadNormBackwardTokens<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(args, partial_sums);
  }
  AddHeadSums<<<static_cast<unsigned>(2 * args.head_dim), kThreads, 0, stream>>>(
      partial_sums, blocks, args.head_dim, args.add_weights, args.grad_query_weight, args.grad_key_weight);
  return cudaGetLastError();
}
TANDEM_KERNEL(HeadNormBackwardArgs)

template <typename E>
int Launch(const PackLatentHeadsArgs<E>& args, Stream stream) {
  const int64_t elements = args.tokens * 3 * args.heads.heads * args.heads.head_dim();
  if (elements == 0) {
    return cudaSuccess;
  }
  PackElements<<<Blocks(elements), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}
TANDEM_KERNEL(PackLatentHeadsArgs)

template <typename E>
int Launch(const UnpackLatentHeadsArgs<E>& args, Stream stream) {
  const LatentHeads& h = args.heads;
  const int64_t elements = args.tokens * (h.heads * (h.head_dim() + h.content + h.value) + h.rotary);
  if (elements == 0) {
    return cudaSuccess;
  }
  UnpackElements<<<Blocks(elements), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}
TANDEM_KERNEL(UnpackLatentHeadsArgs)

}  // namespace tandem::ops::cuda
