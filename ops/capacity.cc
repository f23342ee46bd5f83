// SPDX-License-Identifier: Apache-2.0
#include "ops/capacity.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/tensor_access.h"

namespace tandem::ops {
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

void DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const at::Tensor& ranked,
                  at::Tensor& chosen, at::Tensor& probabilities) {
  const int64_t slots = ranked.numel();
  CheckMatrix("ranked", ranked, ranked.size(0), ranked.size(1));
  CheckMatrix("chosen", chosen, ranked.size(0), ranked.size(1));
  CheckMatrix("probabilities", probabilities, ranked.size(0), ranked.size(1));
  std::vector<std::vector<int64_t>> slots_of(experts);  // in the order of the tokens
  const int64_t* const in = ranked.const_data_ptr<int64_t>();
  int64_t* const out = chosen.mutable_data_ptr<int64_t>();
  for (int64_t slot = 0; slot < slots; ++slot) {
    TORCH_CHECK_INDEX(in[slot] >= 0 && in[slot] < experts, "expert ", in[slot], " of ", experts);
    slots_of[in[slot]].push_back(slot);
    out[slot] = in[slot];
  }
  WithElementType(probabilities, [&]<typename T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      T* const of = MutableElementsOf<T>(probabilities);
      // Of a token whose scores are not finite: last of all.
      const auto key = [&](int64_t slot) {
        return std::isnan(of[slot]) ? -std::numeric_limits<T>::infinity() : of[slot];
      };
      for (std::vector<int64_t>& own : slots_of) {
        if (static_cast<int64_t>(own.size()) <= capacity) {
          continue;
        }
        if (policy == DropPolicy::kProbability) {
          PutThoseThatStayFirst(capacity, key, own);
        }
        for (auto dropped = own.begin() + capacity; dropped != own.end(); ++dropped) {
          out[*dropped] = -1;
        }
      }
      for (int64_t slot = 0; slot < slots; ++slot) {
        of[slot] = out[slot] < 0 ? 0 : of[slot];
      }
    } else {
      TORCH_CHECK(false, "probabilities are of float32 or float64");
    }
  });
}

}  // namespace tandem::ops
