// SPDX-License-Identifier: Apache-2.0
// Norms of query and key heads. A head is read once, in packs of 16 bytes if heads consist of these. As many
// lanes of a warp read it as it has packs, rounded to a power of two, at most all.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/head_norm.h"
#include "ops/row_work.h"

namespace tandem::ops::cuda {
namespace {

// The packs of the largest head that a lane holds.
template <int N>
constexpr int kHeldPacks = kMostGpuNormedHeadDim / 32 / N;

// Visits the calling lane's packs of a head, of whose `count` packs it has every lanes-th: visit(number
// among the lane's packs, number among the head's).
template <int N, typename Visit>
__device__ void ForEachHeld(int lanes, int count, const Visit& visit) {
#pragma unroll
  for (int j = 0; j < kHeldPacks<N>; ++j) {
    const int at = static_cast<int>(threadIdx.x) % lanes + j * lanes;
    if (at < count) {
      visit(j, at);
    }
  }
}

// Sums over the lanes that share a head, with the same result on each, as a tree of one shape. All lanes of
// the warp must call this. kLanes: their number if it is a constant, otherwise 0.
template <int kLanes = 0, typename... T>
__device__ void HeadSums(int lanes, T&... values) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    if (apart < (kLanes > 0 ? kLanes : lanes)) {
      ((values += __shfl_xor_sync(kEveryLane, values, apart)), ...);
    }
  }
}

// A block computes one token.
template <int N, typename E>
__global__ void HeadNormToken(HeadNormArgs<E> args, int lanes) {
  using T = Arithmetic<E>;
  const int64_t head_dim = args.head_dim;
  const int packs = static_cast<int>(head_dim) / N;
  const int queries = static_cast<int>(args.heads);
  const int normed = queries + static_cast<int>(args.kv_heads);
  const int all = normed + static_cast<int>(args.kv_heads);
  const int64_t token = static_cast<int64_t>(blockIdx.x) * args.qkv_columns();
  const int64_t to_token = static_cast<int64_t>(blockIdx.x) * args.normed_columns();
  const int64_t gates = args.query_columns - head_dim;  // gates follow each query
  const int heads_at_once = kThreads / lanes;
  for (int first = 0; first < all; first += heads_at_once) {
    const int head = first + static_cast<int>(threadIdx.x) / lanes;
    const int count = head < all ? packs : 0;
    const E* const x = args.qkv + token + head * head_dim + min(head, queries) * gates;
    Pack<E, N> held[kHeldPacks<N>];
    T squares = 0;
    ForEachHeld<N>(lanes, count, [&](int j, int at) {
      held[j] = PackAt<E, N>(x, at);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        squares += Widen(held[j].e[k]) * Widen(held[j].e[k]);
      }
    });
    HeadSums(lanes, squares);
    if (head < normed) {
      const E* const weight = head < queries ? args.query_weight : args.key_weight;
      const T r = 1 / sqrt(squares / static_cast<T>(head_dim) + static_cast<T>(args.norm.epsilon));
      const T added = static_cast<T>(args.norm.added);
      ForEachHeld<N>(lanes, count, [&](int j, int at) {
        const Pack<E, N> w = PackAt<E, N>(weight, at);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          Narrow(Widen(held[j].e[k]) * r * (Widen(w.e[k]) + added), held[j].e[k]);
        }
      });
    }
    ForEachHeld<N>(lanes, count,
                   [&](int j, int at) { SetPack(args.normed + to_token + head * head_dim, at, held[j]); });
  }
}

// A lane's slots in shared memory: one for the head that it computes, the others for heads that are being
// copied. For double, and if heads do not consist of packs of 16 bytes, there is one slot, and the lane
// waits for each head.
template <int N>
constexpr int kSlots = kHeldPacks<N> < 4 ? 4 / kHeldPacks<N> : 1;

template <typename E, int N>
struct Slot {
  Pack<E, N> x[kHeldPacks<N>][kThreads];
  Pack<E, N> grad[kHeldPacks<N>][kThreads];
  int64_t begin[kThreads];  // in qkv
};

template <typename E, int N>
__device__ void Fetch(const E* from, Pack<E, N>& shared) {
  if constexpr (sizeof(shared) == 16) {
    CopyPack(&shared, from);
  } else {
    shared = PackAt<E, N>(from, 0);
  }
}

// The shared memory of a block: the heads of its lanes, and later each warp's part of the gradient of their
// weight.
template <typename E, int N>
union HeadNormBackwardMemory {
  Slot<E, N> slots[kSlots<N>];
  Arithmetic<E> partial[kWarps][kMostGpuNormedHeadDim];
};

// Walks over the begins of the calling lane's packs of one head after another. The normed heads of one kind,
// of all tokens, go in turn to the groups of lanes of all blocks.
class HeadTurns {
 public:
  // number: of the lane's first head; step: to its next one. In elements: `before` precede this kind's heads
  // in a token, `of_head` is from one of these to the next, `of_token` from one token to the next.
  __device__ HeadTurns(int64_t number, int64_t step, int heads, int64_t before, int64_t of_head,
                       int64_t of_token, int first_element)
      : begin_(number / heads * of_token + before + number % heads * of_head + first_element),
        head_(static_cast<int>(number % heads)),
        heads_(heads),
        step_heads_(static_cast<int>(step % heads)),
        step_elements_(step / heads * of_token + step_heads_ * of_head),
        other_elements_(of_token - heads * of_head) {}

  __device__ int64_t Next() {
    const int64_t begin = begin_;
    head_ += step_heads_;
    begin_ += step_elements_;
    if (head_ >= heads_) {
      head_ -= heads_;
      begin_ += other_elements_;
    }
    return begin;
  }

 private:
  int64_t begin_;
  int head_;  // of its token
  const int heads_;
  const int step_heads_;
  const int64_t step_elements_;
  const int64_t other_elements_;  // from the last head of the kind to the next token's first
};

// Adds up the values of the lanes and then the warps of a block into sums [head_dim]. All threads must call
// this.
template <int N, typename T>
__device__ void SumOfBlock(T (&own)[kHeldPacks<N>][N], int lanes, int packs,
                           T (&partial)[kWarps][kMostGpuNormedHeadDim], T* sums) {
#pragma unroll
  for (int j = 0; j < kHeldPacks<N>; ++j) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      for (int apart = lanes; apart < 32; apart *= 2) {
        own[j][k] += __shfl_xor_sync(kEveryLane, own[j][k], apart);
      }
    }
  }
  if (static_cast<int>(threadIdx.x) % 32 < lanes) {
    ForEachHeld<N>(lanes, packs, [&](int j, int at) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        partial[threadIdx.x / 32][at * N + k] = own[j][k];
      }
    });
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < packs * N; i += kThreads) {
    T sum = partial[0][i];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      sum += partial[w][i];
    }
    sums[i] = sum;
  }
}

// The calling lane's part of a head in the backward: every lanes-th pack from the lane-th on.
template <int N>
struct LanePacks {
  int lanes;
  int lane;
  int of_head;

  // Calls visit(number among the lane's packs, elements from the begin of the first one).
  template <typename Visit>
  __device__ void ForEach(const Visit& visit) const {
#pragma unroll
    for (int j = 0; j < kHeldPacks<N>; ++j) {
      if (j == 0 || lane + j * lanes < of_head) {
        visit(j, j * lanes * N);
      }
    }
  }
};

// A head in the backward, as its lanes compute it.
template <int N, typename T>
struct HeadBackward {
  T x[kHeldPacks<N>][N];
  T grad[kHeldPacks<N>][N];
  T weighted[kHeldPacks<N>][N];  // grad * (weight + added)
  T squares = 0;                 // of x
  T dot = 0;                     // of weighted and x

  // weight: at the lane's first pack.
  template <typename E>
  __device__ void Read(const LanePacks<N>& packs, const Slot<E, N>& slot, const E* weight, T added) {
    packs.ForEach([&](int j, int from) {
      Widen(PackAt<E, N>(weight + from, 0), weighted[j]);
      Widen(slot.x[j][threadIdx.x], x[j]);
      Widen(slot.grad[j][threadIdx.x], grad[j]);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        weighted[j][k] = (weighted[j][k] + added) * grad[j][k];
        squares += x[j][k] * x[j][k];
        dot += weighted[j][k] * x[j][k];
      }
    });
  }

  // Writes the gradient of x, to the lane's packs from `to` on, and adds that of the weight to `weights`.
  // squares and dot: the sums over all lanes.
  template <typename E>
  __device__ void Write(const LanePacks<N>& packs, T of_head_dim, T epsilon, E* to,
                        T (&weights)[kHeldPacks<N>][N]) {
    const T r = rsqrt(squares * of_head_dim + epsilon);
    const T shrink = r * r * (dot * of_head_dim);
    packs.ForEach([&](int j, int from) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const T normed = x[j][k] * r;
        weights[j][k] += grad[j][k] * normed;
        weighted[j][k] = weighted[j][k] * r - normed * shrink;
      }
      Pack<E, N> pack;
      Narrow(weighted[j], pack);
      SetPack(to + from, 0, pack);
    });
  }
};

// Returns in `sums`, [head_dim], the block's part of the gradient of one kind's weight. kGates: gates follow
// the queries, and the gradient of qkv is not in place. All threads of the block must call this.
template <int N, int kLanes, bool kGates, typename E, typename T>
__device__ void HeadNormBackwardKind(const HeadNormBackwardArgs<E>& backward, int any_lanes, bool queries,
                                     HeadNormBackwardMemory<E, N>& memory, T* sums) {
  const HeadNormArgs<E>& args = backward.forward;
  const E* const weight = queries ? args.query_weight : args.key_weight;
  const int heads = static_cast<int>(queries ? args.heads : args.kv_heads);
  const int64_t before = queries ? 0 : args.heads;
  const int thread = static_cast<int>(threadIdx.x);
  const int lanes = kLanes > 0 ? kLanes : any_lanes;
  const LanePacks<N> packs{lanes, thread % lanes, static_cast<int>(args.head_dim) / N};
  const int64_t of_block = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes);
  const int64_t step = static_cast<int64_t>(gridDim.x) * (kThreads / lanes);
  const auto turns_from = [&](int64_t number) {
    return static_cast<int>((args.tokens * heads - number + step - 1) / step);
  };
  const int turns = turns_from(of_block);  // the same for all lanes, which add up together
  const int own_turns = packs.lane < packs.of_head ? turns_from(of_block + thread / lanes) : 0;
  HeadTurns heads_ahead(of_block + thread / lanes, step, heads, before * args.head_dim, args.head_dim,
                        args.normed_columns(), packs.lane * N);
  HeadTurns with_gates(of_block + thread / lanes, step, heads, before * args.query_columns,
                       queries ? args.query_columns : args.head_dim, args.qkv_columns(), packs.lane * N);
  const auto fetch = [&](int turn, Slot<E, N>& slot) {  // commits a group
    if (turn < own_turns) {
      const int64_t of_grad = heads_ahead.Next();
      const int64_t begin = kGates ? with_gates.Next() : of_grad;
      slot.begin[thread] = begin;
      packs.ForEach([&](int j, int from) {
        Fetch(args.qkv + begin + from, slot.x[j][thread]);
        Fetch(backward.grad + of_grad + from, slot.grad[j][thread]);
      });
    }
    CommitGroup();
  };
#pragma unroll
  for (int i = 0; i < kSlots<N>; ++i) {
    fetch(i, memory.slots[i]);
  }
  const T of_head_dim = 1 / static_cast<T>(args.head_dim);
  const T epsilon = static_cast<T>(args.norm.epsilon);
  const T added = static_cast<T>(args.norm.added);
  T own[kHeldPacks<N>][N] = {};
  for (int turn = 0; turn < turns; ++turn) {
    Slot<E, N>& slot = memory.slots[turn % kSlots<N>];
    WaitGroup<kSlots<N> - 1>();
    const bool mine = turn < own_turns;
    int64_t begin = 0;
    HeadBackward<N, T> head;
    if (mine) {
      begin = slot.begin[thread];
      head.Read(packs, slot, weight + packs.lane * N, added);
    }
    HeadSums<kLanes>(lanes, head.squares, head.dot);
    fetch(turn + kSlots<N>, slot);  // the head in this slot has been read
    if (mine) {
      head.Write(packs, of_head_dim, epsilon, backward.grad_qkv + begin, own);
    }
  }
  WaitGroup<0>();
  __syncthreads();  // from here on the warps use the slots' memory
  SumOfBlock<N>(own, lanes, packs.of_head, memory.partial, sums);
}

// On an H100, kHeadNormGroups blocks run at once if so many fit on each of its multiprocessors.
template <typename E, int N>
constexpr int kBlocksAtOnce = sizeof(Arithmetic<E>) == 4 && N > 1 ? 4 : 1;

// partial_sums: [blocks, 2 head_dim], first of the queries' weight, then of the keys'.
template <int N, int kLanes, bool kGates, typename E, typename T = Arithmetic<E>>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<E, N>)
    HeadNormBackwardHeads(HeadNormBackwardArgs<E> args, int lanes, T* partial_sums) {
  __shared__ HeadNormBackwardMemory<E, N> memory;
  const int64_t head_dim = args.forward.head_dim;
  T* const sums = partial_sums + blockIdx.x * 2 * head_dim;
  HeadNormBackwardKind<N, kLanes, kGates>(args, lanes, /*queries=*/true, memory, sums);
  __syncthreads();  // from here on the slots use the warps' memory
  HeadNormBackwardKind<N, kLanes, kGates>(args, lanes, /*queries=*/false, memory, sums + head_dim);
}

constexpr int kSumThreads = 1024;

// A block adds up 32 columns of the blocks' sums; each warp adds every 32nd row.
template <typename T>
__global__ void __launch_bounds__(kSumThreads)
    AddHeadSums(const T* partial_sums, int64_t blocks, int64_t head_dim, bool add, T* grad_query_weight,
                T* grad_key_weight) {
  __shared__ T sums[kSumThreads / 32][32];
  const int64_t column = blockIdx.x * 32 + threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  T sum = 0;
  if (column < 2 * head_dim) {
#pragma unroll 8
    for (int64_t block = warp; block < blocks; block += kSumThreads / 32) {
      sum += partial_sums[block * 2 * head_dim + column];
    }
  }
  sums[warp][threadIdx.x % 32] = sum;
  __syncthreads();
  if (warp > 0 || column >= 2 * head_dim) {
    return;
  }
#pragma unroll
  for (int other = 1; other < kSumThreads / 32; ++other) {
    sum += sums[other][threadIdx.x];
  }
  T& to = column < head_dim ? grad_query_weight[column] : grad_key_weight[column - head_dim];
  to = add ? to + sum : sum;
}

// Returns how many lanes share a head of so many packs.
int LanesOf(int64_t packs) {
  int lanes = 1;
  while (lanes < 32 && lanes < packs) {
    lanes *= 2;
  }
  return lanes;
}

}  // namespace

template <typename E>
int Launch(const HeadNormArgs<E>& args, Stream stream) {
  if (args.tokens == 0) {
    return cudaSuccess;
  }
  WithPacks<E>(
      {args.head_dim}, {args.qkv, args.normed, args.query_weight, args.key_weight}, [&]<int N>(Packed<N>) {
        HeadNormToken<N>
            <<<static_cast<unsigned>(args.tokens), kThreads, 0, stream>>>(args, LanesOf(args.head_dim / N));
      });
  return cudaGetLastError();
}
TANDEM_KERNEL(HeadNormArgs)

template <typename E>
int Launch(const HeadNormBackwardArgs<E>& args, Stream stream) {
  const HeadNormArgs<E>& in = args.forward;
  auto* const partial_sums = static_cast<Arithmetic<E>*>(args.work.begin);
  const int64_t blocks = std::min(in.tokens, kHeadNormGroups);
  const auto start = [&]<int N, int kLanes, bool kGates>(int lanes) {
    HeadNormBackwardHeads<N, kLanes, kGates>
        <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(args, lanes, partial_sums);
  };
  if (blocks > 0) {
    WithPacks<E>({in.head_dim}, {in.qkv, args.grad, args.grad_qkv, in.query_weight, in.key_weight},
                 [&]<int N>(Packed<N>) {
                   const int lanes = LanesOf(in.head_dim / N);
                   const auto launch = [&]<int kLanes>() {
                     if (in.query_columns > in.head_dim) {
                       start.template operator()<N, kLanes, true>(lanes);
                     } else {
                       start.template operator()<N, kLanes, false>(lanes);
                     }
                   };
                   if constexpr (N > 1) {
                     switch (lanes) {
                       case 8:
                         return launch.template operator()<8>();
                       case 16:
                         return launch.template operator()<16>();
                       case 32:
                         return launch.template operator()<32>();
                       default:
                         break;
                     }
                   }
                   launch.template operator()<0>();
                 });
  }
  AddHeadSums<<<static_cast<unsigned>((2 * in.head_dim + 31) / 32), kSumThreads, 0, stream>>>(
      partial_sums, blocks, in.head_dim, args.add_weights, args.grad_query_weight, args.grad_key_weight);
  return cudaGetLastError();
}
TANDEM_KERNEL(HeadNormBackwardArgs)

}  // namespace tandem::ops::cuda
