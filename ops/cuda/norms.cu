// SPDX-License-Identifier: Apache-2.0
// Norms: loops over rows, in packs of 16 bytes if rows consist of these.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/cuda/block.cuh"
#include "ops/cuda/gpu_attributes.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/partial_sums.cuh"
#include "ops/rms_norm.h"
#include "ops/row_work.h"

namespace tandem::ops::cuda {
namespace {

template <int N, typename E, typename T = Arithmetic<E>>
__global__ void RmsNormRow(RmsNormArgs<E> args, T epsilon, T added) {
  const int64_t columns = args.columns;
  const E* const weight = args.weight;
  const E* const x = args.x + blockIdx.x * columns;
  E* const y = args.y + blockIdx.x * columns;
  T squares = 0;
  for (int64_t i = threadIdx.x; i < columns / N; i += kThreads) {
    const Pack<E, N> value = PackAt<E, N>(x, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      squares += Widen(value.e[k]) * Widen(value.e[k]);
    }
  }
  const T r = 1 / sqrt(BlockSum(squares) / static_cast<T>(columns) + epsilon);
  for (int64_t i = threadIdx.x; i < columns / N; i += kThreads) {
    Pack<E, N> value = PackAt<E, N>(x, i);
    const Pack<E, N> w = PackAt<E, N>(weight, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Narrow(Widen(value.e[k]) * r * (Widen(w.e[k]) + added), value.e[k]);
    }
    SetPack(y, i, value);
  }
}

// Sums of a row. With r = 1 / rms(x) and g = grad_y * (weight + added), grad_x = r * (g - x * r^2 * mean(g *
// x)).
template <typename T>
struct RowSums {
  T squares = 0;  // of x
  T dot = 0;      // of g and x

  template <typename E, int N>
  __device__ void Add(const Pack<E, N>& x, const Pack<E, N>& grad, const Pack<E, N>& weight, T added) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      squares += Widen(x.e[k]) * Widen(x.e[k]);
      dot += Widen(grad.e[k]) * Widen(x.e[k]) * (Widen(weight.e[k]) + added);
    }
  }

  // Sums over the block, of at most kMaxThreads. shared: kMaxThreads / 32, whose former content has been
  // read.
  template <int kMaxThreads>
  __device__ void AddUp(RowSums* shared) {
    AddLanes<32>();
    if (threadIdx.x % 32 == 0) {
      shared[threadIdx.x / 32] = *this;
    }
    __syncthreads();
    const unsigned warp = threadIdx.x % (kMaxThreads / 32);
    *this = warp < blockDim.x / 32 ? shared[warp] : RowSums();
    AddLanes<kMaxThreads / 32>();
  }

  // Sums over each kLanes lanes of a warp.
  template <int kLanes>
  __device__ void AddLanes() {
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
      squares += __shfl_xor_sync(kEveryLane, squares, lanes);
      dot += __shfl_xor_sync(kEveryLane, dot, lanes);
    }
  }
};

// The factors that follow from a row's sums.
template <typename T>
struct RowFactors {
  // of_columns: 1 / columns.
  __device__ RowFactors(const RowSums<T>& sums, T of_columns, T epsilon)
      : r(rsqrt(sums.squares * of_columns + epsilon)), shrink(r * r * r * (sums.dot * of_columns)) {}

  // before: the matrix that is added to; may be null.
  template <typename E, int N>
  __device__ Pack<E, N> Gradient(const Pack<E, N>& x, const Pack<E, N>& grad, const Pack<E, N>& weight,
                                 T added, const Pack<E, N>& residual, const E* before) const {
    T gradients[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      gradients[k] = Widen(grad.e[k]) * ((Widen(weight.e[k]) + added) * r) +
                     (Widen(residual.e[k]) - Widen(x.e[k]) * shrink);
    }
    if (before != nullptr) {
      const Pack<E, N> there = PackAt<E, N>(before, 0);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        gradients[k] += Widen(there.e[k]);
      }
    }
    Pack<E, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Narrow(gradients[k], result.e[k]);
    }
    return result;
  }

  T r;
  T shrink;
};

constexpr int kMaxWarps = 32;

// Makes the compiler unpack the words again after this, instead of keeping unpacked elements in registers.
__device__ inline void Repack(uint4& words) {
  asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
}
template <typename P>
__device__ void Repack(P&) {}

// A block has every gridDim.x-th row and a thread for each of its packs, and adds up the weight's gradient
// of its rows. It reads the next row before it knows the sums of the last one.
template <int N, int kMaxThreads, typename E, typename T>
__global__ void __launch_bounds__(kMaxThreads, 1024 / kMaxThreads)
    RmsNormBackwardRows(RmsNormBackwardArgs<E> args, T epsilon, T added, T* partial_sums) {
  using P = Pack<E, N>;
  __shared__ RowSums<T> shared[2][kMaxWarps];  // for two rows in turn
  const int packs = static_cast<int>(args.columns / N);
  const T of_columns = T{1} / static_cast<T>(args.columns);
  const int i = static_cast<int>(threadIdx.x);
  const bool inside = i < packs;
  // Whole words until they are used, because unpacked elements of two bytes would take a register each.
  using Held = std::conditional_t<sizeof(P) == sizeof(uint4), uint4, P>;
  struct Row {
    Held x{};
    Held grad{};
    Held residual{};
  };
  const auto unpack = [](const Held& held) {
    P pack;
    memcpy(&pack, &held, sizeof(pack));
    return pack;
  };
  const auto read = [&](int64_t row) {
    Row read;
    if (inside && row < args.rows) {
      const int64_t at = row * packs + i;
      read.x = reinterpret_cast<const Held*>(args.x)[at];
      read.grad = reinterpret_cast<const Held*>(args.grad_y)[at];
      if (args.residual != nullptr) {
        read.residual = reinterpret_cast<const Held*>(args.residual)[at];
      }
    }
    return read;
  };
  Held weight{};
  if (inside) {
    weight = reinterpret_cast<const Held*>(args.weight)[i];
  }
  T weights[N] = {};
  Row next = read(blockIdx.x);
  int turn = 0;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x, turn ^= 1) {
    Row now = next;
    next = read(row + gridDim.x);
    RowSums<T> sums;
    sums.Add(unpack(now.x), unpack(now.grad), unpack(weight), added);
    sums.template AddUp<kMaxThreads>(shared[turn]);
    if (!inside) {
      continue;
    }
    const RowFactors<T> factors(sums, of_columns, epsilon);
    E* const grad_x = args.grad_x + (row * packs + i) * N;
    for (Held* held : {&now.x, &now.grad, &weight}) {
      Repack(*held);
    }
    const P x = unpack(now.x);
    const P grad = unpack(now.grad);
    SetPack(grad_x, 0,
            factors.Gradient(x, grad, unpack(weight), added, unpack(now.residual),
                             args.add_x ? grad_x : nullptr));
#pragma unroll
    for (int k = 0; k < N; ++k) {
      weights[k] += Widen(grad.e[k]) * (Widen(x.e[k]) * factors.r);
    }
  }
  if (!inside) {
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    partial_sums[(static_cast<int64_t>(blockIdx.x) * packs + i) * N + k] = weights[k];
  }
}

// The same for rows with more packs than a block has threads: they are read twice, and the weight's gradient
// is added up in memory. kShared: in shared memory, with element k of pack i at k * packs + i, so that
// neighbouring threads use neighbouring banks; otherwise in the partial sums.
template <int N, bool kShared, typename E, typename T>
__global__ void __launch_bounds__(kThreads, 4)
    RmsNormBackwardLongRows(RmsNormBackwardArgs<E> args, T epsilon, T added, T* partial_sums) {
  using P = Pack<E, N>;
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ RowSums<T> shared[2][kMaxWarps];
  const int64_t columns = args.columns;
  const T of_columns = T{1} / static_cast<T>(columns);
  const int64_t packs = columns / N;
  T* const left = partial_sums + blockIdx.x * columns;
  T* const weights = kShared ? reinterpret_cast<T*>(dynamic) : left;
  const auto place = [&](int64_t i, int k) { return kShared ? k * packs + i : i * N + k; };
  const auto each_pack = [&](const auto& visit) {  // a thread visits the same packs each time
    for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
      visit(i);
    }
  };
  each_pack([&](int64_t i) {
#pragma unroll
    for (int k = 0; k < N; ++k) weights[place(i, k)] = 0;
  });
  int turn = 0;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x, turn ^= 1) {
    const E* const x = args.x + row * columns;
    const E* const grad_y = args.grad_y + row * columns;
    E* const grad_x = args.grad_x + row * columns;
    RowSums<T> sums;
    each_pack([&](int64_t i) {
      sums.Add(PackAt<E, N>(x, i), PackAt<E, N>(grad_y, i), PackAt<E, N>(args.weight, i), added);
    });
    sums.template AddUp<kThreads>(shared[turn]);
    const RowFactors<T> factors(sums, of_columns, epsilon);
    each_pack([&](int64_t i) {
      const P value = PackAt<E, N>(x, i);
      const P grad = PackAt<E, N>(grad_y, i);
      P residual{};
      if (args.residual != nullptr) {
        residual = PackAt<E, N>(args.residual + row * columns, i);
      }
      SetPack(grad_x, i,
              factors.Gradient(value, grad, PackAt<E, N>(args.weight, i), added, residual,
                               args.add_x ? grad_x + i * N : nullptr));
#pragma unroll
      for (int k = 0; k < N; ++k) weights[place(i, k)] += Widen(grad.e[k]) * Widen(value.e[k]) * factors.r;
    });
  }
  if (!kShared) {
    return;
  }
  each_pack([&](int64_t i) {
#pragma unroll
    for (int k = 0; k < N; ++k) left[i * N + k] = weights[place(i, k)];
  });
}

template <int N, typename E, typename T = Arithmetic<E>>
int StartBackwardRows(const RmsNormBackwardArgs<E>& args, int64_t groups, T* partial_sums, Stream stream) {
  const int64_t packs = args.columns / N;
  const int64_t row_threads = (packs + 31) / 32 * 32;
  const int64_t bytes = args.columns * static_cast<int64_t>(sizeof(T));
  int error = cudaSuccess;
  const auto start = [&](auto kernel, int64_t threads, int64_t shared_bytes) {
    if (shared_bytes > 40 << 10) {  // more than the default must be requested
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared_bytes));
    }
    kernel<<<static_cast<unsigned>(groups), static_cast<unsigned>(threads), static_cast<size_t>(shared_bytes),
             stream>>>(args, static_cast<T>(args.norm.epsilon), static_cast<T>(args.norm.added),
                       partial_sums);
  };
  if (packs <= 512) {
    start(RmsNormBackwardRows<N, 512, E, T>, row_threads, 0);
  } else if (packs <= 1024) {
    start(RmsNormBackwardRows<N, 1024, E, T>, row_threads, 0);
  } else if (bytes <= MaxDynamicSharedBytes()) {
    start(RmsNormBackwardLongRows<N, true, E, T>, kThreads, bytes);
  } else {
    start(RmsNormBackwardLongRows<N, false, E, T>, kThreads, 0);
  }
  return error;
}

}  // namespace

template <typename E>
int Launch(const RmsNormArgs<E>& args, Stream stream) {
  if (args.rows == 0 || args.columns == 0) {
    return cudaSuccess;
  }
  WithPacks<E>({args.columns}, {args.x, args.weight, args.y}, [&]<int N>(Packed<N>) {
    RmsNormRow<N><<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(
        args, static_cast<Arithmetic<E>>(args.norm.epsilon), static_cast<Arithmetic<E>>(args.norm.added));
  });
  return cudaGetLastError();
}
TANDEM_KERNEL(RmsNormArgs)

template <typename E>
int Launch(const RmsNormBackwardArgs<E>& args, Stream stream) {
  using T = Arithmetic<E>;
  const int64_t columns = args.columns;
  if (columns == 0) {
    return cudaSuccess;
  }
  T* const partial_sums = static_cast<T*>(args.work.begin);
  const int64_t groups = std::min(args.rows, kNormGroups);
  int error = cudaSuccess;
  if (groups > 0) {
    WithPacks<E>({columns}, {args.grad_y, args.x, args.weight, args.residual, args.grad_x},
                 [&]<int N>(Packed<N>) { error = StartBackwardRows<N>(args, groups, partial_sums, stream); });
  }
  AddPartialSums<<<PartialSumBlocks(columns), kThreads, 0, stream>>>(partial_sums, columns, groups, columns,
                                                                     args.add_weight, args.grad_weight);
  const int launched = cudaGetLastError();
  return error != cudaSuccess ? error : launched;
}
TANDEM_KERNEL(RmsNormBackwardArgs)

}  // namespace tandem::ops::cuda
