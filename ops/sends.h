// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace tandem::ops {

// Which tokens go to which of the P ranks that share the experts of a layer: rank d has the experts
// [d n, (d + 1) n). A token goes once to each rank that has one of its experts. Rows are in the order of
// (rank, token), so that with `place` for `row_of` Permute makes them and Unpermute adds them up. On the CPU;
// nothing is allocated.

// chosen: int64 [T, k], ascending in each row; -1 where a token has fewer experts. place: int64 [T, P], the
// row of each token among those of each rank, -1: it does not go there. counts: int64 [P], rows of each rank.
// chunk: the rows of rank d begin at d * chunk; 0: where those of the rank before end. Throws c10::IndexError
// for an expert outside.
void PlanSends(const at::Tensor& chosen, int64_t experts_of_a_rank, int64_t chunk, at::Tensor& counts,
               at::Tensor& place);

// What goes with each row, in s slots of which the first are used: the token's experts on that rank, counted
// from its first, and their probabilities. Unused slots, also of rows that nobody sends, are -1 and 0. slots:
// int64 [R, s], s >= min(k, experts_of_a_rank); row_probabilities: [R, s].
void SendSlots(const at::Tensor& chosen, const at::Tensor& probabilities, const at::Tensor& place,
               int64_t experts_of_a_rank, at::Tensor& slots, at::Tensor& row_probabilities);

// The backward of SendSlots: probabilities[t, j] (+)= that of its slot, of -1 nothing.
void CollectSlots(const at::Tensor& row_probabilities, const at::Tensor& chosen, const at::Tensor& place,
                  int64_t experts_of_a_rank, bool add, at::Tensor& probabilities);

}  // namespace tandem::ops
