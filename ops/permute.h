// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/workspace.h"

namespace tandem::ops {

// Rows by expert. A token has k slots, one for each expert that it chose; slot t * k + j is the j-th of token
// t. A slot may be empty: its expert and its row are -1. Rows are in the order of (expert, token).

// chosen: [T, k], ascending in each row and below `experts`, or -1; counts: [experts], rows of each; row_of:
// [T k], the row of each slot. slots: T k. chunk: every expert has so many rows, no fewer than it has slots,
// which are its first; the rows behind them are no slot's. 0: as many as it has slots. On the CPU more slots
// than rows are std::out_of_range.
struct PlanRowsArgs {
  static constexpr const char* kName = "PlanRows";
  const int64_t* chosen;
  int64_t slots;
  int64_t experts;
  int64_t chunk;
  int64_t* counts;
  int64_t* row_of;
  Workspace work;  // SortWorkBytes (sparse_work.h)
};

// Of the experts' rows, those in [first, first + rows): begins[e] = where expert e's begin, counted from
// `first`, and behind the last expert's, how many there are together. counts: [experts]; begins:
// [experts + 1].
struct PlanWindowArgs {
  static constexpr const char* kName = "PlanWindow";
  const int64_t* counts;
  int64_t experts;
  int64_t first;
  int64_t rows;
  int64_t* begins;
};

// out[row_of[t k + j] - first] = tokens[t] for the slots whose row is among [first, first + rows); rows that
// are no slot's are left alone. tokens: [count, columns] of any elements, k of a token; out: [rows, columns].
// Of probabilities [T k, 1] with one slot each it is the order of the experts' rows.
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
  const int64_t* rows_there = nullptr;  // on the device: how many of the rows are some slot's; null: not said
};

// tokens[t] (+)= sum over those slots j of rows[row_of[t k + j] - first], in ascending expert, rounded once;
// zero where there is none and nothing is added to. The backward of Permute, and Permute is its backward.
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
