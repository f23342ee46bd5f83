// SPDX-License-Identifier: Apache-2.0
// Which choices an expert has no room for: each finds out how many of the same expert come before it.
#include <cuda_runtime.h>

#include "ops/cuda/block.cuh"
#include "ops/cuda/sparse_kernels.h"

namespace tandem::ops::cuda {
namespace {

// Of the slots in the order of the experts' rows.
template <typename T>
__global__ void GatherKeys(const int64_t* row_of, int64_t slots, const T* probabilities, int64_t* slot_at,
                           T* key_at) {
  TANDEM_EACH(slot, slots) {
    const int64_t row = row_of[slot];
    if (row < 0) continue;
    const T probability = probabilities[slot];
    slot_at[row] = slot;
    // Of a token whose scores are not finite: last of all.
    key_at[row] = probability == probability ? probability : -static_cast<T>(INFINITY);
  }
}

template <typename T>
__global__ void DropSlots(DropPolicy policy, int64_t capacity, int64_t experts, const int64_t* ranked,
                          int64_t slots, const int64_t* row_of, const int64_t* begins, const int64_t* slot_at,
                          const T* key_at, int64_t* chosen, T* probabilities) {
  TANDEM_EACH(slot, slots) {
    const int64_t expert = ranked[slot];
    const int64_t row = row_of[slot];
    bool drops = row < 0;
    if (!drops) {
      const int64_t begin = begins[expert];
      const int64_t end = begins[expert + 1];
      int64_t before = row - begin;
      if (policy == DropPolicy::kProbability && end - begin > capacity) {
        const T key = key_at[row];
        before = 0;
        for (int64_t other = begin; other < end; ++other) {
          before += key_at[other] > key || (key_at[other] == key && slot_at[other] < slot);
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
  int64_t* const slot_at = row_of + slots;
  T* const key_at = reinterpret_cast<T*>(slot_at + slots);
  int64_t* const counts = slot_at + 2 * slots;
  int64_t* const begins = counts + experts;
  const Workspace sort{.begin = begins + experts + 1, .bytes = work.bytes};
  int error = SortSlots(ranked, slots, experts, /*chunk=*/0, counts, row_of, sort, stream);
  if (error == cudaSuccess) error = PlanWindow(counts, experts, /*first=*/0, slots, begins, stream);
  if (error != cudaSuccess) return error;
  GatherKeys<<<Blocks(slots), kThreads, 0, stream>>>(row_of, slots, probabilities, slot_at, key_at);
  DropSlots<<<Blocks(slots), kThreads, 0, stream>>>(policy, capacity, experts, ranked, slots, row_of, begins,
                                                    slot_at, key_at, chosen, probabilities);
  return cudaGetLastError();
}

#define TANDEM_INSTANTIATE(T)                                                                               \
  template int DropOverflow(DropPolicy, int64_t, int64_t, const int64_t*, int64_t, int64_t*, T*, Workspace, \
                            Stream);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)

}  // namespace tandem::ops::cuda
