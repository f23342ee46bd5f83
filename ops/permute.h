// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace at {
class Tensor;
}

namespace tandem::ops {

// Rows by expert. A token has k slots, one for each expert that it chose; slot t * k + j is the j-th of token
// t. Rows are in the order of (expert, token). On the CPU; nothing is allocated.

// chosen: int64 [T, k], ascending in each row and below E; counts: int64 [E], rows of each expert; row_of:
// int64 [T k], the row of each slot. Throws c10::IndexError for an expert outside.
void PlanRows(const at::Tensor& chosen, at::Tensor& counts, at::Tensor& row_of);

// rows[row_of[t k + j]] = tokens[t]. tokens: [T, H]; rows: [T k, H]. Of probabilities [T k, 1] with one slot
// each it is the order of the experts' rows.
void Permute(const at::Tensor& tokens, const at::Tensor& row_of, at::Tensor& rows);

// tokens[t] (+)= sum over j of rows[row_of[t k + j]], in ascending expert, rounded once. The backward of
// Permute, and Permute is its backward.
void Unpermute(const at::Tensor& rows, const at::Tensor& row_of, bool add, at::Tensor& tokens);

}  // namespace tandem::ops
