// SPDX-License-Identifier: Apache-2.0
#include "ops/permute.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ops/array_checks.h"
#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {
namespace {

// How many elements of a token are summed at a time.
constexpr int64_t kSums = 512;

}  // namespace

template <>
void RunKernel(const PlanRowsArgs& args) {
  std::fill_n(args.counts, args.experts, 0);
  for (int64_t slot = 0; slot < args.slots; ++slot) {
    const int64_t expert = args.chosen[slot];
    CheckIndex(expert >= -1 && expert < args.experts, "slot ", slot, " is of expert ", expert, " of ",
               args.experts);
    args.row_of[slot] = expert < 0 ? -1 : args.counts[expert]++;  // within the expert
  }
  if (args.chunk > 0) {
    for (int64_t expert = 0; expert < args.experts; ++expert) {
      CheckIndex(args.counts[expert] <= args.chunk, "expert ", expert, " has ", args.counts[expert],
                 " rows, and room for ", args.chunk);
    }
    std::fill_n(args.counts, args.experts, args.chunk);
  }
  // While rows are moved, `counts` has where each expert begins.
  int64_t begin = 0;
  for (int64_t expert = 0; expert < args.experts; ++expert) {
    begin += std::exchange(args.counts[expert], begin);
  }
  for (int64_t slot = 0; slot < args.slots; ++slot) {
    args.row_of[slot] += args.chosen[slot] < 0 ? 0 : args.counts[args.chosen[slot]];
  }
  for (int64_t expert = 0; expert + 1 < args.experts; ++expert) {
    args.counts[expert] = args.counts[expert + 1] - args.counts[expert];
  }
  args.counts[args.experts - 1] = begin - args.counts[args.experts - 1];
}

template <>
void RunKernel(const PlanWindowArgs& args) {
  int64_t begin = 0;
  for (int64_t expert = 0; expert <= args.experts; ++expert) {
    args.begins[expert] = std::clamp<int64_t>(begin - args.first, 0, args.rows);
    begin += expert < args.experts ? args.counts[expert] : 0;
  }
}

template <>
void RunKernel(const PermuteArgs& args) {
  const int64_t bytes = args.element_bytes * args.columns;
  const auto* const from = static_cast<const char*>(args.tokens);
  auto* const to = static_cast<char*>(args.out);
  for (int64_t slot = 0; slot < args.count * args.slots_of_a_token; ++slot) {
    const int64_t at = args.row_of[slot] - args.first;
    if (args.row_of[slot] >= 0 && at >= 0 && at < args.rows) {
      std::memcpy(to + at * bytes, from + slot / args.slots_of_a_token * bytes, static_cast<size_t>(bytes));
    }
  }
}

template <typename E>
void Run(const UnpermuteArgs<E>& args) {
  using T = Arithmetic<E>;
  const int64_t slots = args.slots_of_a_token;
  std::array<T, kSums> sums;
  for (int64_t token = 0; token < args.count; ++token) {
    for (int64_t begin = 0; begin < args.columns; begin += kSums) {
      const int64_t elements = std::min(kSums, args.columns - begin);
      E* const out = args.tokens + token * args.columns + begin;
      bool empty = !args.add;
      if (args.add) {
        RunKernel(WidenArgs<E>{out, elements, sums.data()});
      }
      for (int64_t slot = token * slots; slot < (token + 1) * slots; ++slot) {
        const int64_t at = args.row_of[slot] - args.first;
        if (args.row_of[slot] < 0 || at < 0 || at >= args.num_rows) {
          continue;
        }
        const E* const term = args.rows + at * args.columns + begin;
        if (empty) {
          RunKernel(WidenArgs<E>{term, elements, sums.data()});
          empty = false;
        } else {
          RunKernel(AccumulateArgs<E>{term, elements, sums.data()});
        }
      }
      if (empty) {
        std::fill_n(sums.data(), elements, T{0});
      }
      RunKernel(NarrowArgs<E>{sums.data(), elements, out});
    }
  }
}
TANDEM_CPU_KERNEL(UnpermuteArgs)

}  // namespace tandem::ops::cpu
