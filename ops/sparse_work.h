// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/device_kind.h"
#include "ops/linear_work.h"

namespace tandem::ops {

// The work memory of sparse layers' operations, in bytes. This is plain arithmetic. On the CPU they need
// none.

// The largest number of experts, or ranks, for which GPUs have kernels.
inline constexpr int64_t kMostGpuGroups = 1024;

// On a GPU slots are sorted by group in stretches of this many slots, each of which counts its slots of every
// group.
inline constexpr int64_t kSortedAtATime = 256;

// For PlanRows, `groups` is the number of experts, and a token has a slot for each expert that it chose. For
// PlanSends, `groups` is the number of ranks, and a token has a slot for each rank.
constexpr int64_t SortWorkBytes(DeviceKind device, int64_t slots, int64_t groups) {
  return device == DeviceKind::kCpu
             ? 0
             : groups * ((slots + kSortedAtATime - 1) / kSortedAtATime + 1) * static_cast<int64_t>(4);
}

// For both functions of router_losses.h: how many tokens of each sequence have each expert among their
// largest scores, and two numbers for each token.
constexpr int64_t RouterLossesWorkBytes(DeviceKind device, int64_t tokens, int64_t sequences,
                                        int64_t experts) {
  return device == DeviceKind::kCpu ? 0 : (sequences * experts * 4 + 7) / 8 * 8 + tokens * 16;
}

// For DropOverflow: the sort of the slots by expert, the row of each slot and the row's key, the last key of
// each expert with room, how many rows each expert has, and where they begin.
constexpr int64_t DropWorkBytes(DeviceKind device, int64_t slots, int64_t experts) {
  return device == DeviceKind::kCpu
             ? 0
             : slots * 16 + (3 * experts + 1) * 8 + SortWorkBytes(device, slots, experts);
}

// Kernels that do all products of the experts in bfloat16 at once read lists of the experts' matrices. These
// have 64 bytes for each expert, and up to 1 KiB for each multiprocessor.
inline constexpr int64_t kGroupedBf16WorkBytes = int64_t{512} << 10;
static_assert(kGpuLinearWorkBytes >= kGroupedBf16WorkBytes);

// For the experts' products. known_rows: `begins` are on the host, and there may be one product for each
// expert.
constexpr int64_t GroupedWorkBytes(DeviceKind device, int64_t element_bytes, bool known_rows) {
  if (device == DeviceKind::kCpu || known_rows) {
    return LinearWorkBytes(device, element_bytes);
  }
  return element_bytes == 2 ? kGroupedBf16WorkBytes : 0;
}

}  // namespace tandem::ops
