// SPDX-License-Identifier: Apache-2.0
#include "ops/sends.h"

#include <algorithm>

#include "ops/array_checks.h"
#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {
namespace {

// Calls visit(token, j, rank, slot): the j-th expert of a token is in slot `slot` of the token's row on
// `rank`.
template <typename Args, typename Visit>
void ForEachSlot(const Args& args, const Visit& visit) {
  const int64_t* expert = args.chosen;
  for (int64_t token = 0; token < args.tokens; ++token, expert += args.top_k) {
    int64_t last = -1;  // rank
    int64_t slot = 0;
    for (int64_t j = 0; j < args.top_k; ++j) {
      if (expert[j] < 0) {
        continue;
      }
      const int64_t rank = expert[j] / args.experts_of_a_rank;
      slot = rank == last ? slot + 1 : 0;
      last = rank;
      visit(token, j, rank, slot);
    }
  }
}

}  // namespace

template <>
void RunKernel(const PlanSendsArgs& args) {
  const int64_t experts = args.ranks * args.experts_of_a_rank;
  for (int64_t i = 0; i < args.tokens * args.top_k; ++i) {
    CheckIndex(args.chosen[i] >= -1 && args.chosen[i] < experts, "a token has expert ", args.chosen[i],
               " of ", experts);
  }
  std::fill_n(args.counts, args.ranks, 0);
  std::fill_n(args.place, args.tokens * args.ranks, -1);
  ForEachSlot(args, [&](int64_t token, int64_t, int64_t rank, int64_t slot) {
    if (slot == 0) {
      args.place[token * args.ranks + rank] = args.counts[rank]++;
    }
  });
  int64_t begin = 0;
  for (int64_t rank = 0; rank < args.ranks; ++rank) {
    for (int64_t token = 0; token < args.tokens; ++token) {
      int64_t& at = args.place[token * args.ranks + rank];
      at += at < 0 ? 0 : begin;
    }
    begin += args.chunk > 0 ? args.chunk : args.counts[rank];
  }
}

template <typename T>
void Run(const SendSlotsArgs<T>& args) {
  std::fill_n(args.slots, args.rows * args.width, -1);
  std::fill_n(args.row_probabilities, args.rows * args.width, T{0});
  ForEachSlot(args, [&](int64_t token, int64_t j, int64_t rank, int64_t slot) {
    const int64_t at = args.place[token * args.ranks + rank] * args.width + slot;
    const int64_t of = token * args.top_k + j;
    args.slots[at] = args.chosen[of] - rank * args.experts_of_a_rank;
    args.row_probabilities[at] = args.probabilities[of];
  });
}
TANDEM_CPU_STATISTICS_KERNEL(SendSlotsArgs)

template <typename T>
void Run(const CollectSlotsArgs<T>& args) {
  if (!args.add) {
    std::fill_n(args.probabilities, args.tokens * args.top_k, T{0});
  }
  ForEachSlot(args, [&](int64_t token, int64_t j, int64_t rank, int64_t slot) {
    args.probabilities[token * args.top_k + j] +=
        args.row_probabilities[args.place[token * args.ranks + rank] * args.width + slot];
  });
}
TANDEM_CPU_STATISTICS_KERNEL(CollectSlotsArgs)

}  // namespace tandem::ops::cpu
