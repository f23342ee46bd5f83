// SPDX-License-Identifier: Apache-2.0
// Which choices an expert has no room for: each finds out how many of the same expert come before it, the
// probabilities that equal that of the last with room in the order of the slots (capacity.h).
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/sparse_kernels.h"

namespace tandem::ops::cuda {
namespace {

// The keys of an expert's rows are in the order of the slots.
template <typename T>
__global__ void GatherKeys(const int64_t* row_of, int64_t slots, const T* probabilities, T* key_at) {
  TANDEM_EACH(slot, slots) {
    const int64_t row = row_of[slot];
    if (row < 0) continue;
    const T probability = probabilities[slot];
    // Of a token whose scores are not finite: last of all.
    key_at[row] = probability == probability ? probability : -static_cast<T>(INFINITY);
  }
}

// The key of the last choice that each expert with too many has room for.
template <typename T>
__global__ void FindLastKeys(int64_t capacity, const int64_t* ranked, int64_t slots, const int64_t* row_of,
                             const int64_t* begins, const T* key_at, T* last_of) {
  TANDEM_EACH(slot, slots) {
    const int64_t row = row_of[slot];
    if (row < 0) continue;
    const int64_t begin = begins[ranked[slot]];
    const int64_t end = begins[ranked[slot] + 1];
    if (end - begin <= capacity) continue;
    const T key = key_at[row];
    int64_t before = 0;
    for (int64_t other = begin; other < end; ++other) {
      before += key_at[other] > key || (key_at[other] == key && other < row);
    }
    if (before == capacity - 1) last_of[ranked[slot]] = key;
  }
}

// last_of: null: by position.
template <typename T>
__global__ void DropSlots(int64_t capacity, const int64_t* ranked, int64_t slots, const int64_t* row_of,
                          const int64_t* begins, const T* key_at, const T* last_of, int64_t* chosen,
                          T* probabilities) {
  TANDEM_EACH(slot, slots) {
    const int64_t expert = ranked[slot];
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
    chosen[slot] = drops ? -1 : expert;
    if (drops) probabilities[slot] = 0;
  }
}

}  // namespace

template <typename T>
int DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const int64_t* ranked, int64_t slots,
                 int64_t* chosen, T* probabilities, Workspace work, Stream stream) {
  if (slots == 0) return cudaSuccess;
  int64_t* const row_of = static_cast<int64_t*>(work.begin);
  T* const key_at = reinterpret_cast<T*>(row_of + slots);
  T* const last_of = reinterpret_cast<T*>(row_of + 2 * slots);
  int64_t* const counts = row_of + 2 * slots + experts;
  int64_t* const begins = counts + experts;
  const Workspace sort{.begin = begins + experts + 1, .bytes = work.bytes};
  int error = SortSlots(ranked, slots, experts, /*chunk=*/0, counts, row_of, sort, stream);
  if (error == cudaSuccess) error = PlanWindow(counts, experts, /*first=*/0, slots, begins, stream);
  if (error != cudaSuccess) return error;
  const bool by_key = policy == DropPolicy::kProbability;
  if (by_key) {
    GatherKeys<<<Blocks(slots), kThreads, 0, stream>>>(row_of, slots, probabilities, key_at);
    FindLastKeys<<<Blocks(slots), kThreads, 0, stream>>>(capacity, ranked, slots, row_of, begins, key_at,
                                                         last_of);
  }
  DropSlots<<<Blocks(slots), kThreads, 0, stream>>>(capacity, ranked, slots, row_of, begins, key_at,
                                                    by_key ? last_of : nullptr, chosen, probabilities);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T)                                                                               \
  template int DropOverflow(DropPolicy, int64_t, int64_t, const int64_t*, int64_t, int64_t*, T*, Workspace, \
                            Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)

}  // namespace tandem::ops::cuda
