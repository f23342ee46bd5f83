// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/device_kind.h"
#include "ops/linear_work.h"

namespace tandem::ops {

// The work memory of the operations of sparse layers (sparse_operations.h), in bytes; plain arithmetic. On
// the CPU they need none.

// Experts, or ranks, that a GPU has kernels for.
inline constexpr int64_t kMostGpuGroups = 1024;

// On a GPU slots are put in the order of their groups a stretch of so many at a time, each of which counts
// how many it has of every group.
inline constexpr int64_t kSortedAtATime = 256;

// PlanRows: `groups` experts, one slot for each expert of each token. PlanSends: as many groups as ranks, a
// slot for each of a token's.
constexpr int64_t SortWorkBytes(DeviceKind device, int64_t slots, int64_t groups) {
  return device == DeviceKind::kCpu
             ? 0
             : groups * ((slots + kSortedAtATime - 1) / kSortedAtATime + 1) * static_cast<int64_t>(4);
}

// Both of router_losses.h: how many tokens of each sequence have each expert among their largest, and two
// numbers a token.
constexpr int64_t RouterLossesWorkBytes(DeviceKind device, int64_t tokens, int64_t sequences,
                                        int64_t experts) {
  return device == DeviceKind::kCpu ? 0 : (sequences * experts * 4 + 7) / 8 * 8 + tokens * 16;
}

// DropOverflow: the sort of the slots by expert, the row of each and that row's key, the last key of each
// expert with room, how many rows each expert has and where they begin.
constexpr int64_t DropWorkBytes(DeviceKind device, int64_t slots, int64_t experts) {
  return device == DeviceKind::kCpu
             ? 0
             : slots * 16 + (3 * experts + 1) * 8 + SortWorkBytes(device, slots, experts);
}

// Kernels for all of an expert's products in bfloat16 at once read lists of the experts' matrices, 64 bytes
// of each expert, and a multiprocessor has up to 1 KiB.
inline constexpr int64_t kGroupedBf16WorkBytes = int64_t{512} << 10;
static_assert(kGpuLinearWorkBytes >= kGroupedBf16WorkBytes);

// The experts' products. known_rows: `begins` are on the host, and products may be one an expert.
constexpr int64_t GroupedWorkBytes(DeviceKind device, int64_t element_bytes, bool known_rows) {
  if (device == DeviceKind::kCpu || known_rows) {
    return LinearWorkBytes(device, element_bytes);
  }
  return element_bytes == 2 ? kGroupedBf16WorkBytes : 0;
}

}  // namespace tandem::ops
