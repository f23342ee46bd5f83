// SPDX-License-Identifier: Apache-2.0
// Finds the row of each slot by a stable sort by group. A warp has a stretch of slots.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/warp.cuh"
#include "ops/permute.h"
#include "ops/sends.h"
#include "ops/sparse_work.h"

namespace tandem::ops::cuda {
namespace {

constexpr int kSortWarps = 4;

__device__ int64_t GroupOf(const int64_t* group_of, int64_t slot, int64_t slots, int64_t groups) {
  const int64_t group = slot < slots ? group_of[slot] : -1;
  return group < groups ? group : -1;
}

// counted[group * stretches + stretch]: how many slots of the stretch belong to the group.
__global__ void CountStretches(const int64_t* group_of, int64_t slots, int64_t groups, int64_t stretches,
                               int* counted) {
  extern __shared__ int shared[];
  const int64_t stretch = static_cast<int64_t>(blockIdx.x) * kSortWarps + threadIdx.x / 32;
  if (stretch >= stretches) {
    return;
  }
  int* const counts = shared + threadIdx.x / 32 * groups;
  for (int64_t group = LaneOf(); group < groups; group += 32) {
    counts[group] = 0;
  }
  __syncwarp();
  for (int64_t i = LaneOf(); i < kSortedAtATime; i += 32) {
    const int64_t group = GroupOf(group_of, stretch * kSortedAtATime + i, slots, groups);
    if (group >= 0) {
      atomicAdd(counts + group, 1);
    }
  }
  __syncwarp();
  for (int64_t group = LaneOf(); group < groups; group += 32) {
    counted[group * stretches + stretch] = counts[group];
  }
}

// A warp has a group. Replaces each count by that of the stretches before, and writes the group's total.
__global__ void SumStretches(int64_t groups, int64_t stretches, int* counted, int* totals) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kSortWarps + threadIdx.x / 32;
  if (group >= groups) {
    return;
  }
  counted += group * stretches;
  int64_t sum = 0;
  for (int64_t first = 0; first < stretches; first += 32) {
    const int64_t stretch = first + LaneOf();
    const int64_t own = stretch < stretches ? counted[stretch] : 0;
    const int64_t with = InclusiveWarpSum(own);
    if (stretch < stretches) {
      counted[stretch] = static_cast<int>(sum + with - own);
    }
    sum += __shfl_sync(kEveryLane, with, 31);
  }
  if (LaneOf() == 0) {
    totals[group] = static_cast<int>(sum);
  }
}

// The first block also writes the counts. shared: the begin of each group, then the next row of each group
// for each warp's stretch.
__global__ void PlaceSlots(const int64_t* group_of, int64_t slots, int64_t groups, int64_t chunk,
                           int64_t stretches, const int* counted, const int* totals, int64_t* counts,
                           int64_t* row_of) {
  extern __shared__ int64_t begins[];
  if (threadIdx.x < 32) {
    int64_t sum = 0;
    for (int64_t first = 0; first < groups; first += 32) {
      const int64_t group = first + LaneOf();
      const int64_t own = group < groups ? totals[group] : 0;
      const int64_t with = InclusiveWarpSum(own);
      if (group < groups) {
        begins[group] = chunk > 0 ? group * chunk : sum + with - own;
        if (blockIdx.x == 0) {
          counts[group] = own;
        }
      }
      sum += __shfl_sync(kEveryLane, with, 31);
    }
  }
  __syncthreads();
  const int64_t stretch = static_cast<int64_t>(blockIdx.x) * kSortWarps + threadIdx.x / 32;
  if (stretch >= stretches) {
    return;
  }
  int64_t* const next = begins + (1 + threadIdx.x / 32) * groups;
  for (int64_t group = LaneOf(); group < groups; group += 32) {
    next[group] = begins[group] + counted[group * stretches + stretch];
  }
  __syncwarp();
  for (int64_t i = LaneOf(); i < kSortedAtATime; i += 32) {
    const int64_t slot = stretch * kSortedAtATime + i;
    const int64_t group = GroupOf(group_of, slot, slots, groups);
    const unsigned same = __match_any_sync(kEveryLane, group);
    const int before = __popc(same & ((1U << LaneOf()) - 1));
    const int64_t row = group >= 0 ? next[group] + before : -1;
    __syncwarp();
    if (group >= 0 && before == 0) {
      next[group] += __popc(same);
    }
    __syncwarp();
    if (slot < slots) {
      row_of[slot] = row;
    }
  }
}

// place: the rank if one of the token's experts is there, otherwise -1.
__global__ void MarkRanks(PlanSendsArgs args) {
  TANDEM_EACH(i, args.tokens * args.ranks) {
    const int64_t rank = i % args.ranks;
    const int64_t* const experts = args.chosen + i / args.ranks * args.top_k;
    bool goes = false;
    for (int64_t j = 0; j < args.top_k; ++j) {
      goes = goes || (experts[j] >= 0 && experts[j] / args.experts_of_a_rank == rank);
    }
    args.place[i] = goes ? rank : -1;
  }
}

__global__ void Fill(int64_t* numbers, int64_t size, int64_t value) {
  TANDEM_EACH(i, size) numbers[i] = value;
}

// Called with one warp.
__global__ void FindWindow(PlanWindowArgs args) {
  int64_t sum = -args.first;
  const auto inside = [rows = args.rows](int64_t row) { return row < 0 ? 0 : row < rows ? row : rows; };
  for (int64_t from = 0; from < args.experts; from += 32) {
    const int64_t expert = from + LaneOf();
    const int64_t own = expert < args.experts ? args.counts[expert] : 0;
    const int64_t with = InclusiveWarpSum(own);
    if (expert < args.experts) {
      args.begins[expert] = inside(sum + with - own);
    }
    sum += __shfl_sync(kEveryLane, with, 31);
  }
  if (LaneOf() == 0) {
    args.begins[args.experts] = inside(sum);
  }
}

unsigned SortBlocks(int64_t warps) { return static_cast<unsigned>((warps + kSortWarps - 1) / kSortWarps); }

// Each slot belongs to one group or, with -1, to none. counts: slots of each group. row_of: the row of each
// slot in the order of (group, slot); group g begins at g * chunk or, if chunk is 0, where the group before
// ends. row_of may be group_of. work: SortWorkBytes (sparse_work.h).
int SortSlots(const int64_t* group_of, int64_t slots, int64_t groups, int64_t chunk, int64_t* counts,
              int64_t* row_of, Workspace work, Stream stream) {
  static_assert((1 + kSortWarps) * kMostGpuGroups * sizeof(int64_t) <= 48 << 10);
  if (groups > kMostGpuGroups) {
    return cudaErrorInvalidValue;
  }
  if (slots == 0) {
    return cudaMemsetAsync(counts, 0, groups * sizeof(int64_t), stream);
  }
  const int64_t stretches = (slots + kSortedAtATime - 1) / kSortedAtATime;
  int* const counted = static_cast<int*>(work.begin);
  int* const totals = counted + groups * stretches;
  const auto shared = static_cast<size_t>(groups) * kSortWarps * sizeof(int);
  CountStretches<<<SortBlocks(stretches), kSortWarps * 32, shared, stream>>>(group_of, slots, groups,
                                                                             stretches, counted);
  SumStretches<<<SortBlocks(groups), kSortWarps * 32, 0, stream>>>(groups, stretches, counted, totals);
  const auto begins = static_cast<size_t>(groups) * (1 + kSortWarps) * sizeof(int64_t);
  PlaceSlots<<<SortBlocks(stretches), kSortWarps * 32, begins, stream>>>(
      group_of, slots, groups, chunk, stretches, counted, totals, counts, row_of);
  return cudaGetLastError();
}

}  // namespace

template <>
int LaunchKernel(const PlanRowsArgs& args, Stream stream) {
  const int error = SortSlots(args.chosen, args.slots, args.experts, args.chunk, args.counts, args.row_of,
                              args.work, stream);
  if (error != cudaSuccess || args.chunk == 0) {
    return error;
  }
  Fill<<<1, kThreads, 0, stream>>>(args.counts, args.experts, args.chunk);
  return cudaGetLastError();
}

template <>
int LaunchKernel(const PlanSendsArgs& args, Stream stream) {
  const int64_t slots = args.tokens * args.ranks;
  if (slots > 0) {
    MarkRanks<<<Blocks(slots), kThreads, 0, stream>>>(args);
  }
  const int error = cudaGetLastError();
  return error != cudaSuccess ? error
                              : SortSlots(args.place, slots, args.ranks, args.chunk, args.counts, args.place,
                                          args.work, stream);
}

template <>
int LaunchKernel(const PlanWindowArgs& args, Stream stream) {
  FindWindow<<<1, 32, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace tandem::ops::cuda
