// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace tandem::ops {

// Rows by expert. A token has k slots, one for each expert that it chose; slot t * k + j is the j-th of token
// t. A slot may be empty: its expert and its row are -1. Rows are in the order of (expert, token). On the
// CPU; nothing is allocated.

// chosen: int64 [T, k], ascending in each row and below E, or -1; counts: int64 [E], rows of each
// expert; row_of: int64 [T k], the row of each slot. chunk: every expert has so many rows, no fewer than it
// has slots, which are its first; the rows behind them are no slot's. 0: as many as it has slots. Throws
// c10::IndexError for an expert outside, or, on the CPU, with more slots than rows.
void PlanRows(const at::Tensor& chosen, int64_t chunk, at::Tensor& counts, at::Tensor& row_of);

// Of the experts' rows, those in [first, first + rows): begins[e] = where expert e's begin, counted from
// `first`, and behind the last expert's, how many there are together. Returns whether there may be any: not
// where there are none, and that is known without waiting. counts: int64 [E]; begins: int64 [E + 1].
bool PlanWindow(const at::Tensor& counts, int64_t first, int64_t rows, at::Tensor& begins);

// rows[row_of[t k + j] - first] = tokens[t] for the slots whose row is among [first, first + R); rows that
// are no slot's are left alone. tokens: [T, H]; rows: [R, H]. Of probabilities [T k, 1] with one slot each it
// is the order of the experts' rows.
void Permute(const at::Tensor& tokens, const at::Tensor& row_of, int64_t first, at::Tensor& rows);

// tokens[t] (+)= sum over those slots j of rows[row_of[t k + j] - first], in ascending expert, rounded once;
// zero where there is none and nothing is added to. The backward of Permute, and Permute is its backward.
void Unpermute(const at::Tensor& rows, const at::Tensor& row_of, int64_t first, bool add, at::Tensor& tokens);

}  // namespace tandem::ops
