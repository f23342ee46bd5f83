// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and its gradient, one row at a time.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include "ops/cross_entropy.h"
#include "ops/cuda/block.cuh"
#include "ops/cuda/gpu_attributes.h"
#include "ops/cuda/held_rows.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/tokens.cuh"

namespace tandem::ops::cuda {
namespace {

constexpr int kRowThreads = 1024;

// A block reads its row twice, the second time from the second-level cache, if the rows of all running
// blocks fit into it. For that, kernels of large rows ask for shared memory that they do not use, so that a
// multiprocessor runs one block. A GPU that has less per block gives as much as it has.
constexpr int64_t kLargeRow = 128 << 10;
constexpr int kAloneBytes = 120 << 10;

// Writes the gradients of a row's logits, with the kBlock threads of a block; may be in place. target: the
// column from which 1 is subtracted; a column outside of the row means none.
template <int N, int kBlock, typename E, typename T>
__device__ void WriteGradients(const E* logits, int64_t columns, int64_t target, T lse, T scale,
                               E* grad_logits) {
  constexpr int kAtOnce = 4;  // packs that a thread reads before it writes any
  const int64_t target_pack = target >= 0 ? target / N : -1;
  const int64_t packs = columns / N;
  for (int64_t first = threadIdx.x; first < packs; first += kAtOnce * kBlock) {
    Pack<E, N> values[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = first + j * kBlock;
      if (i < packs) {
        values[j] = PackAt<E, N>(logits, i);
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = first + j * kBlock;
      if (i >= packs) {
        continue;
      }
      T gradients[N];
#pragma unroll
      for (int k = 0; k < N; ++k) {
        gradients[k] = Exp(Widen(values[j].e[k]) - lse) * scale;
      }
      if (i == target_pack) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          gradients[k] -= k == target % N ? scale : T{0};
        }
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        Narrow(gradients[k], values[j].e[k]);
      }
      SetPack(grad_logits, i, values[j]);
    }
  }
}

// Returns what is subtracted from a row's logits. For a target that does not count it is infinity, and exp(x
// - infinity) is 0.
template <typename T>
__device__ T GradientLse(int64_t id, T lse) {
  return id == kNotCounted ? static_cast<T>(INFINITY) : lse;
}

template <int N, typename E, typename T>
__global__ void __launch_bounds__(kRowThreads) CrossEntropyRow(CrossEntropyArgs<E> args, T scale) {
  const int64_t columns = args.columns;
  const int64_t begin = blockIdx.x * columns;
  const E* const logits = args.logits + begin;
  const int64_t token = args.first + blockIdx.x;
  const int64_t id = IdOf(args.targets, token);
  T logit = NotANumber<T>();
  if (threadIdx.x == 0 && id >= 0 && id < columns) {
    logit = Widen(logits[id]);
  }
  const T lse = BlockLogSumExp<N, kRowThreads>(logits, columns);
  if (threadIdx.x == 0) {
    args.lse[token] = id == kNotCounted ? T{0} : lse - logit;
  }
  WriteGradients<N, kRowThreads>(logits, columns, id, GradientLse(id, lse), scale, args.grad_logits + begin);
}

// The same for rows of which too many are read at once for the second-level cache, on GPUs with clusters
// (held_rows.cuh). While a cluster writes the gradients of a row it fetches its next row; of the blocks on a
// multiprocessor, one computes while others wait for memory or for their cluster. Dynamic shared memory: 16
// bytes for each of a block's packs of a row.
template <typename E>
__global__ void TANDEM_CLUSTER __launch_bounds__(kHeldThreads, kHeldOfMultiprocessor)
    CrossEntropyHeldRows(CrossEntropyArgs<E> args, float scale) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char shared[];
  // LogSumExp's max and sum of every warp of the cluster, of two rows in turn.
  __shared__ float2 parts[2][kHeldBlocks * kHeldWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = static_cast<int>(RankInCluster());
  const int columns = static_cast<int>(args.columns);
  const HeldPacks<E> packs(shared, columns, rank);
  const int stride = static_cast<int>(gridDim.x) / kHeldBlocks;
  int64_t row = blockIdx.x / kHeldBlocks;
#pragma unroll
  for (int j = 0; j < kHeldPacks; ++j) {
    packs.Fetch(args.logits + packs.Begin(row), j);
  }
  SyncCluster();  // after all blocks have begun, their shared memory may be written
  for (int turn = 0; row < args.rows; row += stride, turn ^= 1) {
    const int64_t id = IdOf(args.targets, args.first + row);
    const int target = id >= 0 && id < columns ? static_cast<int>(id) : -1;
    float logit = NotANumber<float>();
    if (thread == 0 && rank == 0 && target >= 0) {
      logit = Widen(args.logits[row * columns + target]);
    }
    const LogSumExp<float> mine = packs.Sum().OfWarp();
    if (thread % 32 < kHeldBlocks) {
      WriteShared(parts[turn][rank * kHeldWarps + thread / 32], thread % 32, {mine.max, mine.sum});
    }
    SyncCluster();  // the values written two rows ago have been read by now
    LogSumExp<float> whole;
    for (int i = thread % 32; i < kHeldBlocks * kHeldWarps; i += 32) {
      const float2 part = parts[turn][i];
      whole.Add(LogSumExp<float>{part.x, part.y});
    }
    const float lse = whole.OfWarp().value();
    if (thread == 0 && rank == 0) {
      args.lse[args.first + row] = id == kNotCounted ? 0 : lse - logit;
    }
    packs.WriteGradients(target, GradientLse(id, lse), scale, args.grad_logits + packs.Begin(row),
                         row + stride < args.rows ? args.logits + packs.Begin(row + stride) : nullptr);
  }
  WaitGroup<0>();
#endif
}

// Called with one block. loss = the sum of losses / rows.
template <typename T>
__global__ void MeanLoss(const T* losses, int64_t rows, double* loss) {
  double sum = 0;
#pragma unroll 8
  for (int64_t row = threadIdx.x; row < rows; row += kRowThreads) {
    sum += static_cast<double>(losses[row]);
  }
  sum = BlockSum<kRowThreads>(sum);
  if (threadIdx.x == 0) {
    *loss = sum / static_cast<double>(rows);
  }
}

// Whether the GPU loaded the kernel's code for GPUs with clusters of blocks. A build for older GPUs has a
// kernel without clusters, which a newer GPU compiles from intermediate code.
template <typename Kernel>
bool IsCompiledForClusters(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return GpuAttribute(cudaDevAttrComputeCapabilityMajor) >= 9 &&
         cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

// Returns how many clusters of CrossEntropyHeldRows the current GPU runs at once with so much dynamic shared
// memory; 0 if not one fits. A thread asks the runtime once.
template <typename E>
int ClustersAtOnce(int bytes) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    return 0;
  }
  thread_local std::array<int, 3> known = {-1, -1, 0};  // device, bytes, clusters
  if (known[0] == device && known[1] == bytes) {
    return known[2];
  }
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kHeldBlocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kHeldBlocks);
  config.blockDim = dim3(kHeldThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  if (!IsCompiledForClusters(CrossEntropyHeldRows<E>) ||
      cudaFuncSetAttribute(CrossEntropyHeldRows<E>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
          cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&clusters, CrossEntropyHeldRows<E>, &config) != cudaSuccess) {
    cudaGetLastError();  // so that no later call returns this error
    clusters = 0;
  }
  known = {device, bytes, clusters};
  return clusters;
}

// Launches CrossEntropyHeldRows if it suits such rows; otherwise returns false.
template <int N, typename E, typename T>
bool LaunchHeldRows(const CrossEntropyArgs<E>& args, T scale, int& error, Stream stream) {
  if constexpr (sizeof(T) == 4 && N == kPackSize<E>) {
    if (args.columns * static_cast<int64_t>(sizeof(E)) <= kLargeRow || args.columns > kMaxHeldColumns<E>) {
      return false;
    }
    const auto bytes = static_cast<int>((args.columns / N + kHeldBlocks - 1) / kHeldBlocks * 16);
    const int clusters = ClustersAtOnce<E>(bytes);
    if (clusters == 0) {
      return false;
    }
    const auto kernel = CrossEntropyHeldRows<E>;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const auto blocks = static_cast<unsigned>(kHeldBlocks * std::min<int64_t>(args.rows, clusters));
    kernel<<<blocks, kHeldThreads, static_cast<size_t>(bytes), stream>>>(args, scale);
    return true;
  }
  return false;
}

}  // namespace

template <typename E>
int Launch(const CrossEntropyArgs<E>& args, Stream stream) {
  using T = Arithmetic<E>;
  const int64_t tokens = args.targets.sequences * args.targets.length;
  const T scale = static_cast<T>(args.weight / static_cast<double>(tokens));
  int error = cudaSuccess;
  if (args.rows > 0) {
    WithPacks<E>({args.columns}, {args.logits, args.grad_logits}, [&]<int N>(Packed<N>) {
      if (LaunchHeldRows<N>(args, scale, error, stream)) {
        return;
      }
      const auto kernel = CrossEntropyRow<N, E, T>;
      const bool alone = args.columns * static_cast<int64_t>(sizeof(E)) > kLargeRow;
      const int kept_free = alone ? std::min(kAloneBytes, MaxDynamicSharedBytes()) : 0;
      if (alone) {
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kept_free);
      }
      kernel<<<static_cast<unsigned>(args.rows), kRowThreads, static_cast<size_t>(kept_free), stream>>>(
          args, scale);
    });
  }
  if (args.first + args.rows == tokens) {
    MeanLoss<T><<<1, kRowThreads, 0, stream>>>(args.lse, tokens, args.loss);
  }
  const int launched = cudaGetLastError();
  return error != cudaSuccess ? error : launched;
}
TANDEM_KERNEL(CrossEntropyArgs)

}  // namespace tandem::ops::cuda
