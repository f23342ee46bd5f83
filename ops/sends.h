// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/workspace.h"

namespace tandem::ops {

// Decides which tokens go to which of the P ranks that share the experts of a layer. Rank d has the experts
// [d n, (d + 1) n), n = experts_of_a_rank. A token goes once to each rank that has one of its experts. Rows
// have the order of (rank, token). With `place` as `row_of`, Permute makes these rows and Unpermute adds them
// up.

// chosen: [tokens, top_k], ascending in each row; -1 if a token has fewer experts. place: [tokens, ranks],
// the row of each token among those for each rank; -1: it does not go there. counts: [ranks], the number of
// rows for each. chunk: if not 0, the rows for rank d begin at d * chunk; if 0, they begin where those for
// the previous rank end.
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
  Workspace work;  // of SortWorkBytes (sparse_work.h)
};

// What is sent with each row, in `width` slots, of which the first are used: the token's experts on that
// rank, counted from the rank's first, and their probabilities. Unused slots, and those of rows that are not
// sent, are -1 and 0. slots, row_probabilities: [rows, width], width >= min(top_k, experts_of_a_rank). T is
// float or double.
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

// The backward of SendSlots: probabilities[t, j] (+)= the gradient of its slot; choices of -1 get nothing.
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
