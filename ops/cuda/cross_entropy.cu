// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and its gradient, a row at a time.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/tokens.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kRowThreads = 1024;

// A block's row is read twice, the second time from the second-level cache, where the rows of all blocks that
// run at once have room: large rows ask for shared memory that they do not use, so that a multiprocessor has
// one block. A GPU that gives a block less gets as much as it gives.
constexpr int64_t kLargeRow = 128 << 10;
constexpr int kAloneBytes = 120 << 10;
constexpr int kOwnBytes = 4 << 10;  // at most what the kernel has of its own

// The gradients of a row's logits, by the kBlock threads of a block; may be in place. target: the column that
// is subtracted from, outside of them: none.
template <int N, int kBlock, typename E, typename T>
__device__ void WriteGradients(const E* logits, int64_t columns, int64_t target, T lse, T scale,
                               E* grad_logits) {
  const int64_t target_pack = target >= 0 ? target / N : -1;
#pragma unroll 2
  for (int64_t i = threadIdx.x; i < columns / N; i += kBlock) {
    Pack<E, N> values = PackAt<E, N>(logits, i);
    T gradients[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      gradients[k] = Exp(Widen(values.e[k]) - lse) * scale;
    }
    if (i == target_pack) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        gradients[k] -= k == target % N ? scale : T{0};
      }
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Narrow(gradients[k], values.e[k]);
    }
    SetPack(grad_logits, i, values);
  }
}

template <int N, typename E, typename T>
__global__ void __launch_bounds__(kRowThreads) CrossEntropyRow(CrossEntropyArgs<E> args, T scale) {
  const int64_t columns = args.columns;
  const int64_t begin = blockIdx.x * columns;
  const E* const logits = args.logits + begin;
  const int64_t id = IdOf(args.targets, blockIdx.x);
  T logit = NotANumber<T>();
  if (threadIdx.x == 0 && id >= 0 && id < columns) {
    logit = Widen(logits[id]);
  }
  const T lse = BlockLogSumExp<N, kRowThreads>(logits, columns);
  if (threadIdx.x == 0) {
    args.lse[blockIdx.x] = lse - logit;
  }
  WriteGradients<N, kRowThreads>(logits, columns, id, lse, scale, args.grad_logits + begin);
}

template <typename T>
__device__ T LogAddExp(T a, T b) {
  const T most = a < b ? b : a;
  const T least = a < b ? a : b;  // and NaN where b is, which the sum then is
  return least == -static_cast<T>(INFINITY) ? most : most + log1p(exp(least - most));
}

template <int N, typename E>
__global__ void LogSumExpOfBlock(CrossEntropyBlockArgs<E> args) {
  using T = Arithmetic<E>;
  const E* const row = args.logits + blockIdx.x * args.columns;
  const T sum = BlockLogSumExp<N>(row, args.columns);
  if (threadIdx.x > 0) {
    return;
  }
  const int64_t target = IdOf(args.targets, blockIdx.x) - args.first;
  T& logit = args.target_logits[blockIdx.x];
  if (args.first == 0) {
    logit = NotANumber<T>();
  }
  if (target >= 0 && target < args.columns) {
    logit = Widen(row[target]);
  }
  T& lse = args.lse[blockIdx.x];
  lse = args.first == 0 ? sum : LogAddExp(lse, sum);
}

template <int N, typename E>
__global__ void GradientsOfBlock(CrossEntropyBlockBackwardArgs<E> args, Arithmetic<E> scale) {
  E* const row = args.logits + blockIdx.x * args.columns;
  WriteGradients<N, kThreads>(row, args.columns, IdOf(args.targets, blockIdx.x) - args.first,
                              args.lse[blockIdx.x], scale, row);
}

// The same for rows of which the second-level cache has no room for all that are read at once, on GPUs with
// clusters: two blocks share a row and hold it, most of it in shared memory, the rest in registers, so that
// logits are read once. A thread reads back only what it has copied itself. As a cluster writes the gradients
// of a row it fetches its next one; a multiprocessor has two blocks, of which one computes while the other
// waits for memory.
constexpr int kHeldThreads = 512;
constexpr int kHeldBlocks = 2;    // of a row
constexpr int kStagedPacks = 13;  // of a thread, in shared memory
constexpr int kHeldPacks = 6;     // in registers
constexpr int kRowPacks = kStagedPacks + kHeldPacks;
constexpr int kStagedBytes = kStagedPacks * kHeldThreads * 16;

template <typename E>
constexpr int64_t kMaxHeldColumns = int64_t{kRowPacks * kHeldBlocks * kHeldThreads * kPackSize<E>};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define TANDEM_CLUSTER
#else
#define TANDEM_CLUSTER __cluster_dims__(kHeldBlocks, 1, 1)
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ inline unsigned RankInCluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// What its blocks have written to shared memory before, they see behind it.
__device__ inline void SyncCluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// From the shared memory of the block of that rank, where `own` lies in this one's.
__device__ inline float ReadShared(const float& own, unsigned rank) {
  float value;
  asm volatile(
      "{ .reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [there]; }"
      : "=f"(value)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&own))), "r"(rank)
      : "memory");
  return value;
}
#endif

template <typename E>
__global__ void TANDEM_CLUSTER __launch_bounds__(kHeldThreads, 2)
    CrossEntropyHeldRows(CrossEntropyArgs<E> args, int64_t rows, float scale) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int N = kPackSize<E>;
  using P = Pack<E, N>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ LogSumExp<float> parts[2];  // this block's of a row, in turns
  P* const staged = reinterpret_cast<P*>(shared) + threadIdx.x;
  P held[kHeldPacks];
  const unsigned rank = RankInCluster();
  const int64_t columns = args.columns;
  const int64_t clusters = gridDim.x / kHeldBlocks;
  const int packs = static_cast<int>(columns / N);
  const auto pack = [&](int j) {
    return (j * kHeldBlocks + static_cast<int>(rank)) * kHeldThreads + static_cast<int>(threadIdx.x);
  };
  const auto fetch = [&](int64_t row, int j) {  // of those in shared memory, each closes a group of copies
    const bool present = row < rows && pack(j) < packs;
    const E* const from = args.logits + row * columns;
    if (j >= kStagedPacks) {
      if (present) {
        held[j - kStagedPacks] = PackAt<E, N>(from, pack(j));
      }
    } else {
      if (present) {
        CopyPack(staged + j * kHeldThreads, from + static_cast<int64_t>(pack(j)) * N);
      }
      CloseCopies();
    }
  };
  const int64_t first = blockIdx.x / kHeldBlocks;
#pragma unroll
  for (int j = 0; j < kRowPacks; ++j) {
    fetch(first, j);
  }
  int turn = 0;
  for (int64_t row = first; row < rows; row += clusters, turn ^= 1) {
    const int64_t id = IdOf(args.targets, row);
    float logit = NotANumber<float>();
    if (threadIdx.x == 0 && id >= 0 && id < columns) {
      logit = Widen(args.logits[row * columns + id]);
    }
    LogSumExp<float> mine;
    const auto add = [&]<int kFirst, int kCount>() {
      if constexpr (kFirst < kStagedPacks) {
        constexpr int kOpen = kStagedPacks - kFirst - kCount;
        AwaitCopies<(kOpen > 0 ? kOpen : 0)>();
      }
      P values[kCount];
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        if (kFirst + j >= kStagedPacks) {
          values[j] = held[kFirst + j >= kStagedPacks ? kFirst + j - kStagedPacks : 0];
        } else {
          values[j] = staged[(kFirst + j) * kHeldThreads];
        }
      }
      mine.Add(values, [&](int j) { return pack(kFirst + j) < packs; });
    };
    add.template operator()<0, 4>();
    add.template operator()<4, 4>();
    add.template operator()<8, 4>();
    add.template operator()<12, 4>();
    add.template operator()<16, kRowPacks - 16>();
    mine = mine.template OfBlock<kHeldThreads>();
    if (threadIdx.x == 0) {
      parts[turn] = mine;
    }
    SyncCluster();  // the last row's parts have been read before: they are of the other turn
    LogSumExp<float> whole;
#pragma unroll
    for (unsigned block = 0; block < kHeldBlocks; ++block) {
      whole.Add(LogSumExp<float>{ReadShared(parts[turn].most, block), ReadShared(parts[turn].sum, block)});
    }
    const float lse = whole.value();
    if (threadIdx.x == 0 && rank == 0) {
      args.lse[row] = lse - logit;
    }
    const int target_pack = id >= 0 && id < columns ? static_cast<int>(id / N) : -1;
#pragma unroll
    for (int j = 0; j < kRowPacks; ++j) {
      if (pack(j) < packs) {
        P values =
            j >= kStagedPacks ? held[j >= kStagedPacks ? j - kStagedPacks : 0] : staged[j * kHeldThreads];
        float gradients[N];
#pragma unroll
        for (int k = 0; k < N; ++k) {
          gradients[k] = Exp(Widen(values.e[k]) - lse) * scale;
        }
        if (pack(j) == target_pack) {
#pragma unroll
          for (int k = 0; k < N; ++k) {
            gradients[k] -= k == id % N ? scale : 0.0F;
          }
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
          Narrow(gradients[k], values.e[k]);
        }
        SetPack(args.grad_logits + row * columns, pack(j), values);
      }
      fetch(row + clusters, j);
    }
  }
  AwaitCopies<0>();
  SyncCluster();  // the other block may still read this one's parts
#endif
}

// One block. loss = the mean of losses, or where target_logits are given of what losses are above these.
template <typename T>
__global__ void MeanLoss(const T* losses, const T* target_logits, int64_t rows, double* loss) {
  double sum = 0;
#pragma unroll 8
  for (int64_t row = threadIdx.x; row < rows; row += kRowThreads) {
    sum += static_cast<double>(losses[row] - (target_logits == nullptr ? T{0} : target_logits[row]));
  }
  sum = BlockSum<kRowThreads>(sum);
  if (threadIdx.x == 0) {
    *loss = sum / static_cast<double>(rows);
  }
}

// Of the current GPU; 0 where the runtime does not say.
int Attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

// Whether what the GPU loaded is the kernel's code for GPUs with clusters of blocks. A build for older ones
// has a kernel without any, which a newer GPU compiles from that intermediate code.
template <typename Kernel>
bool IsCompiledForClusters(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return Attribute(cudaDevAttrComputeCapabilityMajor) >= 9 &&
         cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

// Launches CrossEntropyHeldRows where it is for such rows; otherwise returns false.
template <int N, typename E, typename T>
bool LaunchHeldRows(const CrossEntropyArgs<E>& args, T scale, int& error, Stream stream) {
  if constexpr (sizeof(T) == 4 && N == kPackSize<E>) {
    if (args.columns * static_cast<int64_t>(sizeof(E)) > kLargeRow && args.columns <= kMaxHeldColumns<E> &&
        IsCompiledForClusters(CrossEntropyHeldRows<E>) &&
        Attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) >= 2 * (kStagedBytes + 4096)) {
      const auto kernel = CrossEntropyHeldRows<E>;
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kStagedBytes);
      const int64_t rows = args.targets.sequences * args.targets.length;
      const int64_t clusters =
          std::min<int64_t>(rows, Attribute(cudaDevAttrMultiProcessorCount) * 2 / kHeldBlocks);
      kernel<<<static_cast<unsigned>(clusters * kHeldBlocks), kHeldThreads, kStagedBytes, stream>>>(
          args, rows, scale);
      return true;
    }
  }
  return false;
}

}  // namespace

template <typename E>
int Launch(const CrossEntropyArgs<E>& args, Stream stream) {
  using T = Arithmetic<E>;
  const int64_t rows = args.targets.sequences * args.targets.length;
  const T scale = static_cast<T>(1.0 / static_cast<double>(rows));
  int error = cudaSuccess;
  if (rows > 0) {
    WithPacks<E>({args.columns}, {args.logits, args.grad_logits}, [&]<int N>(Packed<N>) {
      if (LaunchHeldRows<N>(args, scale, error, stream)) {
        return;
      }
      const auto kernel = CrossEntropyRow<N, E, T>;
      const bool alone = args.columns * static_cast<int64_t>(sizeof(E)) > kLargeRow;
      const int kept_free =
          alone ? std::min(kAloneBytes, Attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kOwnBytes) : 0;
      if (alone) {
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kept_free);
      }
      kernel<<<static_cast<unsigned>(rows), kRowThreads, static_cast<size_t>(kept_free), stream>>>(args,
                                                                                                   scale);
    });
  }
  MeanLoss<T><<<1, kRowThreads, 0, stream>>>(args.lse, nullptr, rows, args.loss);
  const int launched = cudaGetLastError();
  return error != cudaSuccess ? error : launched;
}
TANDEM_KERNEL(CrossEntropyArgs)

template <typename E>
int Launch(const CrossEntropyBlockArgs<E>& args, Stream stream) {
  const int64_t rows = args.targets.sequences * args.targets.length;
  if (rows > 0) {
    WithPacks<E>({args.columns}, {args.logits}, [&]<int N>(Packed<N>) {
      LogSumExpOfBlock<N><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(args);
    });
  }
  if (args.first + args.columns == args.vocabulary) {
    MeanLoss<Arithmetic<E>><<<1, kRowThreads, 0, stream>>>(args.lse, args.target_logits, rows, args.loss);
  }
  return cudaGetLastError();
}
TANDEM_KERNEL(CrossEntropyBlockArgs)

template <typename E>
int Launch(const CrossEntropyBlockBackwardArgs<E>& args, Stream stream) {
  const int64_t rows = args.targets.sequences * args.targets.length;
  if (rows == 0) {
    return cudaSuccess;
  }
  const auto scale = static_cast<Arithmetic<E>>(1.0 / static_cast<double>(rows));
  WithPacks<E>({args.columns}, {args.logits}, [&]<int N>(Packed<N>) {
    GradientsOfBlock<N><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(args, scale);
  });
  return cudaGetLastError();
}
TANDEM_KERNEL(CrossEntropyBlockBackwardArgs)

}  // namespace tandem::ops::cuda
