// SPDX-License-Identifier: Apache-2.0
#include "ops/sends.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// Calls visit(token, j, rank, slot): the j-th expert of a token is in that slot of the token's row there.
template <typename Visit>
void ForEachSlot(const at::Tensor& chosen, int64_t experts_of_a_rank, const Visit& visit) {
  const int64_t top_k = chosen.size(1);
  const int64_t* expert = chosen.const_data_ptr<int64_t>();
  for (int64_t token = 0; token < chosen.size(0); ++token, expert += top_k) {
    int64_t last = -1;  // rank
    int64_t slot = 0;
    for (int64_t j = 0; j < top_k; ++j) {
      if (expert[j] < 0) {
        continue;
      }
      const int64_t rank = expert[j] / experts_of_a_rank;
      slot = rank == last ? slot + 1 : 0;
      last = rank;
      visit(token, j, rank, slot);
    }
  }
}

void CheckSlots(const at::Tensor& chosen, const at::Tensor& place, const at::Tensor& row_probabilities,
                const at::Tensor& probabilities, int64_t experts_of_a_rank) {
  const int64_t tokens = chosen.size(0);
  CheckMatrix("chosen", chosen, tokens, chosen.size(1));
  CheckMatrix("place", place, tokens, place.size(1));
  CheckMatrix("probabilities", probabilities, tokens, chosen.size(1));
  CheckMatrix("row_probabilities", row_probabilities, row_probabilities.size(0), row_probabilities.size(1));
  TORCH_CHECK(row_probabilities.size(1) >= std::min(chosen.size(1), experts_of_a_rank),
              "a row has too few slots: ", row_probabilities.size(1));
}

}  // namespace

void PlanSends(const at::Tensor& chosen, int64_t experts_of_a_rank, int64_t chunk, at::Tensor& counts,
               at::Tensor& place) {
  const int64_t tokens = chosen.size(0);
  const int64_t ranks = counts.numel();
  CheckMatrix("chosen", chosen, tokens, chosen.size(1));
  CheckElements("counts", counts, ranks);
  CheckMatrix("place", place, tokens, ranks);
  int64_t* const count_of = counts.mutable_data_ptr<int64_t>();
  int64_t* const row = place.mutable_data_ptr<int64_t>();
  const int64_t* const expert = chosen.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < chosen.numel(); ++i) {
    TORCH_CHECK_INDEX(expert[i] >= -1 && expert[i] < ranks * experts_of_a_rank, "a token has expert ",
                      expert[i], " of ", ranks * experts_of_a_rank);
  }
  std::fill_n(count_of, ranks, 0);
  std::fill_n(row, tokens * ranks, -1);
  ForEachSlot(chosen, experts_of_a_rank, [&](int64_t token, int64_t, int64_t rank, int64_t slot) {
    if (slot == 0) {
      row[token * ranks + rank] = count_of[rank]++;
    }
  });
  int64_t begin = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t token = 0; token < tokens; ++token) {
      int64_t& at = row[token * ranks + rank];
      at += at < 0 ? 0 : begin;
    }
    begin += chunk > 0 ? chunk : count_of[rank];
  }
}

void SendSlots(const at::Tensor& chosen, const at::Tensor& probabilities, const at::Tensor& place,
               int64_t experts_of_a_rank, at::Tensor& slots, at::Tensor& row_probabilities) {
  CheckSlots(chosen, place, row_probabilities, probabilities, experts_of_a_rank);
  const int64_t width = row_probabilities.size(1);
  CheckMatrix("slots", slots, row_probabilities.size(0), width);
  slots.fill_(-1);
  row_probabilities.zero_();
  WithElementType(probabilities, [&]<typename E>(E) {
    const E* const from = ElementsOf<E>(probabilities);
    E* const to = MutableElementsOf<E>(row_probabilities);
    const int64_t* const row = place.const_data_ptr<int64_t>();
    const int64_t* const expert = chosen.const_data_ptr<int64_t>();
    int64_t* const local = slots.mutable_data_ptr<int64_t>();
    ForEachSlot(chosen, experts_of_a_rank, [&](int64_t token, int64_t j, int64_t rank, int64_t slot) {
      const int64_t at = row[token * place.size(1) + rank] * width + slot;
      const int64_t of = token * chosen.size(1) + j;
      local[at] = expert[of] - rank * experts_of_a_rank;
      to[at] = from[of];
    });
  });
}

void CollectSlots(const at::Tensor& row_probabilities, const at::Tensor& chosen, const at::Tensor& place,
                  int64_t experts_of_a_rank, bool add, at::Tensor& probabilities) {
  CheckSlots(chosen, place, row_probabilities, probabilities, experts_of_a_rank);
  if (!add) {
    probabilities.zero_();
  }
  WithElementType(probabilities, [&]<typename E>(E) {
    const E* const from = ElementsOf<E>(row_probabilities);
    E* const to = MutableElementsOf<E>(probabilities);
    const int64_t* const row = place.const_data_ptr<int64_t>();
    ForEachSlot(chosen, experts_of_a_rank, [&](int64_t token, int64_t j, int64_t rank, int64_t slot) {
      const E value = from[row[token * place.size(1) + rank] * row_probabilities.size(1) + slot];
      E& sum = to[token * chosen.size(1) + j];
      if constexpr (std::is_same_v<E, Bf16>) {
        throw std::invalid_argument("probabilities are in the type of statistics");
      } else {
        sum += value;
      }
    });
  });
}

}  // namespace tandem::ops
