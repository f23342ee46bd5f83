// SPDX-License-Identifier: Apache-2.0
// Norms: loops over rows, in packs of 16 bytes where rows consist of such.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/row_work.h"

namespace tandem::ops::cuda {
namespace {

template <typename E, int N, typename T>
__global__ void RmsNormRow(const E* x, const E* weight, T epsilon, int64_t columns, E* y) {
  x += blockIdx.x * columns;
  y += blockIdx.x * columns;
  T squares = 0;
  for (int64_t i = threadIdx.x; i < columns / N; i += kThreads) {
    const Pack<E, N> value = PackAt<E, N>(x, i);
#pragma unroll
    for (int k = 0; k < N; ++k) squares += Widen(value.e[k]) * Widen(value.e[k]);
  }
  const T r = 1 / sqrt(BlockSum(squares) / static_cast<T>(columns) + epsilon);
  for (int64_t i = threadIdx.x; i < columns / N; i += kThreads) {
    Pack<E, N> value = PackAt<E, N>(x, i);
    const Pack<E, N> w = PackAt<E, N>(weight, i);
#pragma unroll
    for (int k = 0; k < N; ++k) Narrow(Widen(value.e[k]) * r * Widen(w.e[k]), value.e[k]);
    SetPack(y, i, value);
  }
}

// Both sums over a block of kBlock threads at once.
template <int kBlock, typename T>
__device__ void BlockSums(T& a, T& b) {
  __shared__ T shared[2][kBlock / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    a += __shfl_xor_sync(0xFFFFFFFF, a, lanes);
    b += __shfl_xor_sync(0xFFFFFFFF, b, lanes);
  }
  __syncthreads();  // the last sums' readers
  if (threadIdx.x % 32 == 0) {
    shared[0][threadIdx.x / 32] = a;
    shared[1][threadIdx.x / 32] = b;
  }
  __syncthreads();
  a = shared[0][0];
  b = shared[1][0];
#pragma unroll
  for (int warp = 1; warp < kBlock / 32; ++warp) {
    a += shared[0][warp];
    b += shared[1][warp];
  }
}

template <typename E, typename T>
struct NormBackwardArguments {
  const E* grad_y;
  const E* x;
  const E* weight;
  const E* residual;  // null: none
  T epsilon;
  int64_t rows;
  int64_t columns;
  bool add_x;
  E* grad_x;
  T* partial_sums;  // [gridDim.x, columns]
};

// The sums of a row, and what follows from them. With r = 1 / rms(x) and g = grad_y * weight:
// grad_x = r * (g - x * r^2 * mean(g * x)); the weight's gradient is the sum of grad_y * x * r over the rows.
template <typename T>
struct NormRow {
  T squares = 0;
  T dot = 0;
  T r = 0;
  T shrink = 0;

  template <typename E, int N>
  __device__ void Add(const Pack<E, N>& value, const Pack<E, N>& grad, const Pack<E, N>& weight) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      squares += Widen(value.e[k]) * Widen(value.e[k]);
      dot += Widen(grad.e[k]) * Widen(value.e[k]) * Widen(weight.e[k]);
    }
  }
  template <int kBlock>
  __device__ void Close(int64_t columns, T epsilon) {
    BlockSums<kBlock>(squares, dot);
    r = 1 / sqrt(squares / static_cast<T>(columns) + epsilon);
    shrink = r * r * r * dot / static_cast<T>(columns);
  }
  // Writes grad_x of pack i of the row at `begin`; calls sum(k, what the weight's gradient gets).
  template <typename E, int N, typename Sum>
  __device__ void Write(const NormBackwardArguments<E, T>& a, int64_t begin, int64_t i,
                        const Pack<E, N>& value, const Pack<E, N>& grad, const Pack<E, N>& weight,
                        const Pack<E, N>& beside, const Sum& sum) const {
    Pack<E, N> result{};
    if (a.add_x) result = PackAt<E, N>(a.grad_x + begin, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      T gradient = Widen(grad.e[k]) * Widen(weight.e[k]) * r - Widen(value.e[k]) * shrink;
      if (a.residual != nullptr) gradient += Widen(beside.e[k]);
      Narrow(a.add_x ? Widen(result.e[k]) + gradient : gradient, result.e[k]);
      sum(k, Widen(grad.e[k]) * Widen(value.e[k]) * r);
    }
    SetPack(a.grad_x + begin, i, result);
  }
};

// A block has every gridDim.x-th row, and adds up the weight's gradient of these in shared memory, element k
// of pack i at k * packs + i: neighbouring threads read neighbouring banks. It reads a row twice.
template <typename E, int N, typename T>
__global__ void __launch_bounds__(kThreads, 4) RmsNormBackwardRows(NormBackwardArguments<E, T> a) {
  extern __shared__ __align__(16) unsigned char shared[];
  using P = Pack<E, N>;
  T* const sums = reinterpret_cast<T*>(shared);
  const int64_t packs = a.columns / N;
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k * packs + i] = 0;
  }
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const int64_t begin = row * a.columns;
    NormRow<T> norm;
    for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
      norm.Add(PackAt<E, N>(a.x + begin, i), PackAt<E, N>(a.grad_y + begin, i), PackAt<E, N>(a.weight, i));
    }
    norm.template Close<kThreads>(a.columns, a.epsilon);
    for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
      P beside{};
      if (a.residual != nullptr) beside = PackAt<E, N>(a.residual + begin, i);
      norm.Write(a, begin, i, PackAt<E, N>(a.x + begin, i), PackAt<E, N>(a.grad_y + begin, i),
                 PackAt<E, N>(a.weight, i), beside, [&](int k, T term) { sums[k * packs + i] += term; });
    }
  }
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
#pragma unroll
    for (int k = 0; k < N; ++k) a.partial_sums[blockIdx.x * a.columns + i * N + k] = sums[k * packs + i];
  }
}

constexpr int kHeld = 2;    // packs of a row that a thread of RmsNormBackwardHeldRows has
constexpr int kStages = 4;  // rows that a block has in shared memory or on the way there

// The same of rows of at most kHeld * kBlock packs of 16 bytes: a thread copies its packs of the next rows to
// shared memory while it works on one, and keeps those of the weight and of its gradient.
template <typename E, int N, int kBlock, typename T>
__global__ void __launch_bounds__(kBlock, 512 / kBlock)
    RmsNormBackwardHeldRows(NormBackwardArguments<E, T> a) {
  extern __shared__ __align__(16) unsigned char shared[];
  using P = Pack<E, N>;
  // Of a stage: x, grad_y, residual. Pack j of the thread is kBlock packs behind pack j - 1.
  constexpr int kMatrix = kHeld * kBlock;
  P* const stages = reinterpret_cast<P*>(shared) + threadIdx.x;
  const int packs = static_cast<int>(a.columns / N);
  const auto each = [&](const auto& body) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kBlock;
      if (i < packs) body(j, i);
    }
  };
  const auto copy = [&](int64_t row, int stage) {  // closes a group, also behind the last row
    if (row < a.rows) {
      P* const to = stages + stage * 3 * kMatrix;
      const int64_t begin = row * a.columns;
      each([&](int j, int i) {
        CopyPack(to + j * kBlock, a.x + begin + i * N);
        CopyPack(to + kMatrix + j * kBlock, a.grad_y + begin + i * N);
        if (a.residual != nullptr) CopyPack(to + 2 * kMatrix + j * kBlock, a.residual + begin + i * N);
      });
    }
    CloseCopies();
  };
  P weight[kHeld];
  T sums[kHeld][N] = {};
  each([&](int j, int i) { weight[j] = PackAt<E, N>(a.weight, i); });
  int64_t ahead = blockIdx.x;
#pragma unroll
  for (int stage = 0; stage + 1 < kStages; ++stage, ahead += gridDim.x) copy(ahead, stage);
  int stage = 0;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, ahead += gridDim.x) {
    copy(ahead, (stage + kStages - 1) % kStages);
    AwaitCopies<kStages - 1>();
    const P* const held = stages + stage * 3 * kMatrix;
    NormRow<T> norm;
    each([&](int j, int) { norm.Add(held[j * kBlock], held[kMatrix + j * kBlock], weight[j]); });
    norm.template Close<kBlock>(a.columns, a.epsilon);
    each([&](int j, int i) {
      norm.Write(a, row * a.columns, i, held[j * kBlock], held[kMatrix + j * kBlock], weight[j],
                 held[2 * kMatrix + j * kBlock], [&](int k, T term) { sums[j][k] += term; });
    });
    stage = (stage + 1) % kStages;
  }
  AwaitCopies<0>();
  each([&](int j, int i) {
#pragma unroll
    for (int k = 0; k < N; ++k) a.partial_sums[blockIdx.x * a.columns + i * N + k] = sums[j][k];
  });
}

// grad_weight (+)= the rows of partial_sums: a block has 32 columns, a warp every kWarps-th row.
template <typename T>
__global__ void AddPartialSums(const T* partial_sums, int64_t rows, int64_t columns, bool add,
                               T* grad_weight) {
  __shared__ T shared[kWarps][32];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  T sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = warp; row < rows; row += kWarps) sum += partial_sums[row * columns + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
  T total = add ? grad_weight[column] : T{0};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += shared[w][lane];
  grad_weight[column] = total;
}

// Of a block of the current GPU, where it asks for them; 0 where the runtime does not say.
int64_t MostSharedBytes() {
  int device = 0;
  int bytes = 0;
  const bool known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess;
  return known ? bytes : 0;
}

}  // namespace

template <typename E>
int RmsNorm(const E* x, const E* weight, double epsilon, int64_t rows, int64_t columns, E* y, Stream stream) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  WithPacks<E>({columns}, {x, weight, y}, [&]<int N>(Packed<N>) {
    RmsNormRow<E, N><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        x, weight, static_cast<Arithmetic<E>>(epsilon), columns, y);
  });
  return cudaGetLastError();
}

template <typename E>
int RmsNormBackward(const E* grad_y, const E* x, const E* weight, double epsilon, int64_t rows,
                    int64_t columns, const E* residual, bool add_x, E* grad_x, bool add_weight,
                    Arithmetic<E>* grad_weight, Arithmetic<E>* partial_sums, Stream stream) {
  if (columns == 0) return cudaSuccess;
  using T = Arithmetic<E>;
  const int64_t groups = std::min(rows, kNormGroups);
  int error = cudaSuccess;
  if (groups > 0) {
    const NormBackwardArguments<E, T> arguments{grad_y, x,       weight, residual, static_cast<T>(epsilon),
                                                rows,   columns, add_x,  grad_x,   partial_sums};
    WithPacks<E>({columns}, {grad_y, x, weight, residual, grad_x}, [&]<int N>(Packed<N>) {
      const auto launch = [&](auto kernel, int threads, int64_t bytes) {
        if (bytes > 48 << 10) {  // more must be asked for
          error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes));
        }
        kernel<<<static_cast<unsigned>(groups), threads, bytes, stream>>>(arguments);
      };
      const int64_t staged = int64_t{16} * kStages * 3 * kHeld * kThreads;
      if constexpr (N == kPackSize<E>) {
        if (columns / N <= kHeld * kThreads) {
          return launch(RmsNormBackwardHeldRows<E, N, kThreads, T>, kThreads, staged);
        }
        if (columns / N <= kHeld * 2 * kThreads && MostSharedBytes() >= 2 * staged) {
          return launch(RmsNormBackwardHeldRows<E, N, 2 * kThreads, T>, 2 * kThreads, 2 * staged);
        }
      }
      launch(RmsNormBackwardRows<E, N, T>, kThreads, columns * static_cast<int64_t>(sizeof(T)));
    });
  }
  AddPartialSums<<<static_cast<unsigned>((columns + 31) / 32), kThreads, 0, stream>>>(
      partial_sums, groups, columns, add_weight, grad_weight);
  const int launched = cudaGetLastError();
  return error != cudaSuccess ? error : launched;
}

#define TANDEM_INSTANTIATE(E)                                                                              \
  template int RmsNorm(const E*, const E*, double, int64_t, int64_t, E*, Stream);                          \
  template int RmsNormBackward(const E*, const E*, const E*, double, int64_t, int64_t, const E*, bool, E*, \
                               bool, Arithmetic<E>*, Arithmetic<E>*, Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
TANDEM_INSTANTIATE(Bf16)

}  // namespace tandem::ops::cuda
