// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/router_config.h"
#include "ops/workspace.h"

namespace tandem::ops::cuda {

// The kernels behind the operations of sparse layers; as kernels.h says of its own. Integers alone are added
// up by atomics, where their order means nothing. `begins`: [groups + 1] on the GPU (grouped_linear.h); what
// it says is read there, so grids are as large as the most rows that there can be, and what is beyond ends at
// once. An index outside of its range counts as none.

// --- Rows by expert and by rank (permute.h, sends.h).

inline constexpr int64_t kMostGroups = 1024;  // experts, or ranks

// Each slot is of one group or, -1, of none. counts: slots of each; row_of: the row of each slot where they
// lie in the order of (group, slot), group g's from g * chunk on, or of chunk 0 where those of the one before
// end. row_of may be group_of. work: SortWorkBytes (sparse_work.h).
int SortSlots(const int64_t* group_of, int64_t slots, int64_t groups, int64_t chunk, int64_t* counts,
              int64_t* row_of, Workspace work, Stream stream);

// place: [tokens, ranks], the rank where some expert of the token is there, else -1.
int MarkRanks(const int64_t* chosen, int64_t tokens, int64_t top_k, int64_t experts_of_a_rank, int64_t ranks,
              int64_t* place, Stream stream);

int PlanWindow(const int64_t* counts, int64_t groups, int64_t first, int64_t rows, int64_t* begins,
               Stream stream);

// Of any elements of `element_bytes`, 2, 4 or 8.
int Permute(const void* tokens, int64_t count, int64_t slots_of_a_token, const int64_t* row_of, int64_t first,
            int64_t rows, int64_t columns, int64_t element_bytes, void* out, Stream stream);

template <typename E>
int Unpermute(const E* rows, int64_t num_rows, const int64_t* row_of, int64_t first, bool add, int64_t count,
              int64_t slots_of_a_token, int64_t columns, E* tokens, Stream stream);

// T: float, double.
template <typename T>
int SendSlots(const int64_t* chosen, const T* probabilities, const int64_t* place, int64_t tokens,
              int64_t top_k, int64_t experts_of_a_rank, int64_t ranks, int64_t rows, int64_t width,
              int64_t* slots, T* row_probabilities, Stream stream);
template <typename T>
int CollectSlots(const T* row_probabilities, const int64_t* chosen, const int64_t* place, int64_t tokens,
                 int64_t top_k, int64_t experts_of_a_rank, int64_t ranks, int64_t width, bool add,
                 T* probabilities, Stream stream);

// --- The experts' own.

// C (+)= A B for each expert, in tiles of fixed size and order: the bits of a row depend on its own numbers
// and the expert's alone, those of a weight's gradient on the rows of its expert. Sums are of Arithmetic<E>.
// `most_rows`: of x, those that begins may say.
template <typename E>
int GroupedLinear(const int64_t* begins, int64_t experts, int64_t most_rows, const E* x, const E* weight,
                  int64_t inputs, int64_t outputs, E* y, Stream stream);
template <typename E>
int GroupedLinearBackwardInput(const int64_t* begins, int64_t experts, int64_t most_rows, const E* grad_y,
                               const E* weight, int64_t inputs, int64_t outputs, E* grad_x, Stream stream);
// G: E or Arithmetic<E>.
template <typename E, typename G>
int GroupedLinearBackwardWeight(const int64_t* begins, int64_t experts, const E* grad_y, const E* x,
                                int64_t inputs, int64_t outputs, bool add, G* grad_weight, Stream stream);

template <typename E>
int WeightedSwiGlu(const int64_t* rows_there, const E* gate_up, const Arithmetic<E>* weights, int64_t rows,
                   int64_t inner, E* activated, Stream stream);
template <typename E>
int WeightedSwiGluBackward(const int64_t* rows_there, const E* gate_up, const Arithmetic<E>* weights,
                           const E* grad_activated, int64_t rows, int64_t inner, E* grad_gate_up,
                           E* activated, Arithmetic<E>* grad_weights, Stream stream);

// --- Routers (router.h, router_losses.h, capacity.h). T: float, double.

template <typename T>
int Route(const RouterConfig& config, const T* logits, const T* bias, int64_t tokens, int64_t* chosen,
          T* probabilities, Stream stream);
template <typename T>
int RouteBackward(const RouterConfig& config, const T* logits, const int64_t* ranked, const int64_t* chosen,
                  const T* grad_probabilities, int64_t tokens, T* grad_logits, Stream stream);

// experts: at most kMostGroups.
int CountTokens(const int64_t* chosen, int64_t slots, int64_t experts, double* tokens, double* dropped,
                Stream stream);
template <typename T>
int UpdateRouterBias(const double* tokens, int64_t ranks, int64_t stride, int64_t experts,
                     const bool* applies, double rate, T* bias, Stream stream);

// work: RouterLossesWorkBytes (sparse_work.h).
template <typename T>
int RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const T* logits, int64_t tokens,
                 double* values, Workspace work, Stream stream);
template <typename T>
int RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses, const T* logits,
                         int64_t tokens, T* grad_logits, Workspace work, Stream stream);

// work: DropWorkBytes (sparse_work.h).
template <typename T>
int DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const int64_t* ranked, int64_t slots,
                 int64_t* chosen, T* probabilities, Workspace work, Stream stream);

}  // namespace tandem::ops::cuda
