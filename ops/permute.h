// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/workspace.h"

namespace tandem::ops {

// Copies tokens to rows that are sorted by expert, and back. A token has k slots, one for each expert that it
// chose; slot t * k + j is the j-th of token t. If a slot is empty, its expert and its row are -1. Rows are
// sorted by (expert, token).

// chosen: [T, k], ascending in each row and below `experts`, or -1. counts: [experts], the number of rows of
// each expert. row_of: [T k], the row of each slot. slots: T k. chunk: if not 0, every expert has this many
// rows, at least as many as it has slots; its slots come first, and the other rows belong to no slot. If 0,
// an expert has as many rows as slots. On the CPU, more slots than rows throw std::out_of_range.
struct PlanRowsArgs {
  static constexpr const char* kName = "PlanRows";
  const int64_t* chosen;
  int64_t slots;
  int64_t experts;
  int64_t chunk;
  int64_t* counts;
  int64_t* row_of;
  Workspace work;  // of SortWorkBytes (sparse_work.h)
};

// Divides the window [first, first + rows) of all experts' rows: begins[e] is the first row of expert e,
// counted from `first`, and the last element is the number of rows in the window. counts: [experts]; begins:
// [experts + 1].
struct PlanWindowArgs {
  static constexpr const char* kName = "PlanWindow";
  const int64_t* counts;
  int64_t experts;
  int64_t first;
  int64_t rows;
  int64_t* begins;
};

// out[row_of[t k + j] - first] = tokens[t] for the slots whose row is in [first, first + rows); rows without
// a slot are not written. tokens: [count, columns] with elements of any type and k slots each; out: [rows,
// columns]. `tokens` may also be the probabilities, [T k, 1], with one slot each.
struct PermuteArgs {
  static constexpr const char* kName = "Permute";
  const void* tokens;
  int64_t count;
  int64_t slots_of_a_token;
  const int64_t* row_of;
  int64_t first;
  int64_t rows;
  int64_t columns;
  int64_t element_bytes;  // 2, 4 or 8
  void* out;
  const int64_t* rows_there = nullptr;  // on the device: how many of the rows have a slot; null: unknown
};

// tokens[t] (+)= the sum over its slots j of rows[row_of[t k + j] - first], if that row is in the window, in
// the order of experts and rounded once. Without such slots it is zero, or unchanged if it is added to.
// Permute and Unpermute are each other's backward.
template <typename E>
struct UnpermuteArgs {
  static constexpr const char* kName = "Unpermute";
  const E* rows;
  int64_t num_rows;
  const int64_t* row_of;
  int64_t first;
  bool add;
  int64_t count;
  int64_t slots_of_a_token;
  int64_t columns;
  E* tokens;
  const int64_t* rows_there = nullptr;  // as in PermuteArgs
};

}  // namespace tandem::ops
