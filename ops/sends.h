// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/workspace.h"

namespace tandem::ops {

// Which tokens go to which of the P ranks that share the experts of a layer: rank d has the experts
// [d n, (d + 1) n), n = experts_of_a_rank. A token goes once to each rank that has one of its experts. Rows
// are in the order of (rank, token), so that with `place` for `row_of` Permute makes them and Unpermute adds
// them up.

// chosen: [tokens, top_k], ascending in each row; -1 where a token has fewer experts. place: [tokens, ranks],
// the row of each token among those of each rank, -1: it does not go there. counts: [ranks], rows of each.
// chunk: the rows of rank d begin at d * chunk; 0: where those of the rank before end.
struct PlanSendsArgs {
  static constexpr const char* kName = "PlanSends";
  const int64_t* chosen;
  int64_t tokens;
  int64_t top_k;
  int64_t experts_of_a_rank;
  int64_t ranks;
  int64_t chunk;
  int64_t* counts;
  int64_t* place;
  Workspace work;  // SortWorkBytes (sparse_work.h)
};

// What goes with each row, in `width` slots of which the first are used: the token's experts on that rank,
// counted from its first, and their probabilities. Unused slots, also of rows that no rank sends, are -1 and
// 0. slots, row_probabilities: [rows, width], width >= min(top_k, experts_of_a_rank). T: float, double.
template <typename T>
struct SendSlotsArgs {
  static constexpr const char* kName = "SendSlots";
  const int64_t* chosen;
  const T* probabilities;
  const int64_t* place;
  int64_t tokens;
  int64_t top_k;
  int64_t experts_of_a_rank;
  int64_t ranks;
  int64_t rows;
  int64_t width;
  int64_t* slots;
  T* row_probabilities;
};

// The backward of SendSlots: probabilities[t, j] (+)= that of its slot, of -1 nothing.
template <typename T>
struct CollectSlotsArgs {
  static constexpr const char* kName = "CollectSlots";
  const T* row_probabilities;
  const int64_t* chosen;
  const int64_t* place;
  int64_t tokens;
  int64_t top_k;
  int64_t experts_of_a_rank;
  int64_t ranks;
  int64_t width;
  bool add;
  T* probabilities;
};

}  // namespace tandem::ops
