// SPDX-License-Identifier: Apache-2.0
#include "ops/capacity.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/array_checks.h"
#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {
namespace {

// slots: more than `capacity`, ascending.
template <typename Key>
void PutThoseThatStayFirst(int64_t capacity, const Key& key, std::vector<int64_t>& slots) {
  using T = std::invoke_result_t<Key, int64_t>;
  std::vector<T> keys(slots.size());
  std::transform(slots.begin(), slots.end(), keys.begin(), key);
  std::nth_element(keys.begin(), keys.begin() + (capacity - 1), keys.end(), std::greater<T>());
  const T last = keys[capacity - 1];
  const T margin = std::isfinite(last) ? std::abs(last) * kEqualProbabilities<T> : 0;
  const auto equal = std::stable_partition(slots.begin(), slots.end(),
                                           [&](int64_t slot) { return key(slot) > last + margin; });
  std::stable_partition(equal, slots.end(), [&](int64_t slot) { return key(slot) >= last - margin; });
}

}  // namespace

template <typename T>
void Run(const DropOverflowArgs<T>& args) {
  std::vector<std::vector<int64_t>> slots_of(args.experts);  // in the order of the tokens
  for (int64_t slot = 0; slot < args.slots; ++slot) {
    const int64_t expert = args.ranked[slot];
    CheckIndex(expert >= 0 && expert < args.experts, "expert ", expert, " of ", args.experts);
    slots_of[expert].push_back(slot);
    args.chosen[slot] = expert;
  }
  // Tokens whose scores are not finite come last.
  const auto key = [&](int64_t slot) {
    const T probability = args.probabilities[slot];
    return std::isnan(probability) ? -std::numeric_limits<T>::infinity() : probability;
  };
  for (std::vector<int64_t>& own : slots_of) {
    if (static_cast<int64_t>(own.size()) <= args.capacity) {
      continue;
    }
    if (args.policy == DropPolicy::kProbability) {
      PutThoseThatStayFirst(args.capacity, key, own);
    }
    for (auto dropped = own.begin() + args.capacity; dropped != own.end(); ++dropped) {
      args.chosen[*dropped] = -1;
    }
  }
  for (int64_t slot = 0; slot < args.slots; ++slot) {
    T& probability = args.probabilities[slot];
    probability = args.chosen[slot] < 0 ? 0 : probability;
  }
}
TANDEM_CPU_STATISTICS_KERNEL(DropOverflowArgs)

}  // namespace tandem::ops::cpu
