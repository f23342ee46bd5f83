// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/block.cuh"

// Rows of logits in the shared memory of a cluster's blocks, a share in each, so that logits are read once.
// Only for GPUs with clusters.
namespace tandem::ops::cuda {

constexpr int kHeldThreads = 384;
[[maybe_unused]] constexpr int kHeldWarps = kHeldThreads / 32;
constexpr int kHeldBlocks = 4;  // blocks that share a row: a cluster
constexpr int kHeldPacks = 13;  // packs of a thread, at most
// Blocks on a multiprocessor: as many as have room if rows are of nearly 300 KiB.
constexpr int kHeldOfMultiprocessor = 3;

template <typename E>
constexpr int64_t kMaxHeldColumns = int64_t{kHeldPacks} * kHeldBlocks * kHeldThreads * kPackSize<E>;

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

// A barrier of all blocks of the cluster. After it they see what the others have written to shared memory
// before it.
__device__ inline void SyncCluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Writes `value` to the shared memory of the cluster's block `rank`, at the offset of `own` in this block's.
__device__ inline void WriteShared(float2& own, unsigned rank, float2 value) {
  asm volatile(
      "{ .reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.v2.f32 [there], {%2, %3}; }"
      :
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&own))), "r"(rank), "f"(value.x), "f"(value.y)
      : "memory");
}

// The packs of a row that the calling thread holds in shared memory: every kHeldThreads-th of its block's
// share, one of kHeldBlocks.
template <typename E>
class HeldPacks {
 public:
  static constexpr int kSize = kPackSize<E>;
  using P = Pack<E, kSize>;

  // shared: 16 bytes for each of the block's packs.
  __device__ HeldPacks(unsigned char* shared, int columns, int rank)
      : held_(reinterpret_cast<P*>(shared) + threadIdx.x),
        columns_(columns),
        first_(rank * Share(columns) + static_cast<int>(threadIdx.x)),
        count_(min(columns / kSize, (rank + 1) * Share(columns)) - first_) {}

  // The offset of this thread's first element of row `row` in a matrix.
  __device__ int64_t Begin(int64_t row) const { return row * columns_ + int64_t{first_} * kSize; }

  // Starts the copy of the thread's j-th pack of the row at `from`, or of nothing if `from` is null. Commits
  // a group.
  __device__ void Fetch(const E* from, int j) const {
    if (from != nullptr && IsPresent(j)) {
      CopyPack(held_ + j * kHeldThreads, from + j * kHeldThreads * kSize);
    }
    CommitGroup();
  }

  // The log-sum-exp of the thread's elements. Requires that kHeldPacks groups are in flight, and no others.
  __device__ LogSumExp<float> Sum() const {
    LogSumExp<float> sum;
    [&]<int... kPairs>(std::integer_sequence<int, kPairs...>) { (AddTo<2 * kPairs, 2>(sum), ...); }
    (std::make_integer_sequence<int, kHeldPacks / 2>());
    if constexpr (kHeldPacks % 2 == 1) {
      AddTo<kHeldPacks - 1, 1>(sum);
    }
    return sum;
  }

  // Writes the gradients of the thread's packs to the row at `to`, and fetches the packs of the row at `next`
  // in their place. target: the column of the target, or -1.
  __device__ void WriteGradients(int target, float lse, float scale, E* to, const E* next) const {
    const int target_pack = target >= 0 ? target / kSize - first_ : -1;  // from this thread's first one on
#pragma unroll
    for (int j = 0; j < kHeldPacks; ++j) {
      if (IsPresent(j)) {
        P values = held_[j * kHeldThreads];
        float gradients[kSize];
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          gradients[k] = Exp(Widen(values.e[k]) - lse) * scale;
        }
        if (j * kHeldThreads == target_pack) {
#pragma unroll
          for (int k = 0; k < kSize; ++k) {
            gradients[k] -= k == target % kSize ? scale : 0.0F;
          }
        }
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          Narrow(gradients[k], values.e[k]);
        }
        SetPack(to, j * kHeldThreads, values);
      }
      Fetch(next, j);
    }
  }

 private:
  static __device__ int Share(int columns) { return (columns / kSize + kHeldBlocks - 1) / kHeldBlocks; }
  __device__ bool IsPresent(int j) const { return j * kHeldThreads < count_; }

  // Adds kCount packs from the kFirst-th on, after waiting for them.
  template <int kFirst, int kCount>
  __device__ void AddTo(LogSumExp<float>& sum) const {
    WaitGroup<kHeldPacks - kFirst - kCount>();
    P values[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (IsPresent(kFirst + j)) {
        values[j] = held_[(kFirst + j) * kHeldThreads];
      }
    }
    sum.Add(values, [&](int j) { return IsPresent(kFirst + j); });
  }

  P* const held_;
  const int columns_;
  const int first_;
  const int count_;  // of the block's packs from the first on
};
#endif

}  // namespace tandem::ops::cuda
