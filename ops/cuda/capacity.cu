// SPDX-License-Identifier: Apache-2.0
// Finds the choices for which an expert has no room. Each choice finds out how many of the same expert come
// before it; those with the same probability as the last with room are ordered by slot (capacity.h).
#include <cuda_runtime.h>

#include "ops/capacity.h"
#include "ops/cuda/block.cuh"
#include "ops/cuda/kernels.h"
#include "ops/permute.h"

namespace tandem::ops::cuda {
namespace {

// Writes the keys of each expert's rows in the order of the slots.
template <typename T>
__global__ void GatherKeys(DropOverflowArgs<T> args, const int64_t* row_of, T* key_at) {
  TANDEM_EACH(slot, args.slots) {
    const int64_t row = row_of[slot];
    if (row < 0) {
      continue;
    }
    const T probability = args.probabilities[slot];
    // Tokens whose scores are not finite come last.
    key_at[row] = probability == probability ? probability : -static_cast<T>(INFINITY);
  }
}

// Finds the key of the last choice for which each expert with too many has room.
template <typename T>
__global__ void FindLastKeys(DropOverflowArgs<T> args, const int64_t* row_of, const int64_t* begins,
                             const T* key_at, T* last_of) {
  TANDEM_EACH(slot, args.slots) {
    const int64_t row = row_of[slot];
    if (row < 0) {
      continue;
    }
    const int64_t begin = begins[args.ranked[slot]];
    const int64_t end = begins[args.ranked[slot] + 1];
    if (end - begin <= args.capacity) {
      continue;
    }
    const T key = key_at[row];
    int64_t before = 0;
    for (int64_t other = begin; other < end; ++other) {
      before += key_at[other] > key || (key_at[other] == key && other < row);
    }
    if (before == args.capacity - 1) {
      last_of[args.ranked[slot]] = key;
    }
  }
}

// last_of: may be null; then only the position counts.
template <typename T>
__global__ void DropSlots(DropOverflowArgs<T> args, const int64_t* row_of, const int64_t* begins,
                          const T* key_at, const T* last_of) {
  const int64_t capacity = args.capacity;
  TANDEM_EACH(slot, args.slots) {
    const int64_t expert = args.ranked[slot];
    const int64_t row = row_of[slot];
    bool drops = row < 0;
    if (!drops) {
      const int64_t begin = begins[expert];
      const int64_t end = begins[expert + 1];
      int64_t before = row - begin;
      if (last_of != nullptr && end - begin > capacity) {
        const T last = last_of[expert];
        const T margin = isfinite(last) ? abs(last) * kEqualProbabilities<T> : 0;
        const T above = last + margin;
        const T below = last - margin;
        before = 0;
        if (key_at[row] < below) {
          before = capacity;
        } else if (!(key_at[row] > above)) {
          for (int64_t other = begin; other < end; ++other) {
            before += key_at[other] > above || (other < row && key_at[other] >= below);
          }
        }
      }
      drops = before >= capacity;
    }
    args.chosen[slot] = drops ? -1 : expert;
    if (drops) {
      args.probabilities[slot] = 0;
    }
  }
}

}  // namespace

template <typename T>
int Launch(const DropOverflowArgs<T>& args, Stream stream) {
  const int64_t slots = args.slots;
  const int64_t experts = args.experts;
  if (slots == 0) {
    return cudaSuccess;
  }
  int64_t* const row_of = static_cast<int64_t*>(args.work.begin);
  T* const key_at = reinterpret_cast<T*>(row_of + slots);
  T* const last_of = reinterpret_cast<T*>(row_of + 2 * slots);
  int64_t* const counts = row_of + 2 * slots + experts;
  int64_t* const begins = counts + experts;
  const Workspace sort{.begin = begins + experts + 1, .bytes = args.work.bytes};
  int error =
      LaunchKernel(PlanRowsArgs{args.ranked, slots, experts, /*chunk=*/0, counts, row_of, sort}, stream);
  if (error == cudaSuccess) {
    error = LaunchKernel(PlanWindowArgs{counts, experts, /*first=*/0, /*rows=*/slots, begins}, stream);
  }
  if (error != cudaSuccess) {
    return error;
  }
  const bool by_key = args.policy == DropPolicy::kProbability;
  if (by_key) {
    GatherKeys<<<Blocks(slots), kThreads, 0, stream>>>(args, row_of, key_at);
    FindLastKeys<<<Blocks(slots), kThreads, 0, stream>>>(args, row_of, begins, key_at, last_of);
  }
  DropSlots<<<Blocks(slots), kThreads, 0, stream>>>(args, row_of, begins, key_at, by_key ? last_of : nullptr);
  return cudaGetLastError();
}
TANDEM_STATISTICS_KERNEL(DropOverflowArgs)

}  // namespace tandem::ops::cuda
