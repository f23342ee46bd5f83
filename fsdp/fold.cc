// SPDX-License-Identifier: Apache-2.0
#include "fsdp/fold.h"

#include <algorithm>

#include "fsdp/vector_clones.h"

namespace tandem::fsdp {
namespace {

constexpr int64_t kBlock = 4096;  // elements of the accumulator that stay in the first-level cache

template <typename T, typename C>
[[gnu::always_inline]] inline void FoldAny(T* accumulator, const C* contributions, int64_t elements,
                                           int64_t stride, int num_contributions, bool add) {
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t block = std::min(kBlock, elements - begin);
    T* __restrict const sum = accumulator + begin;
    for (int r = 0; r < num_contributions; ++r) {
      const C* __restrict const term = contributions + r * stride + begin;
      if (r == 0 && !add) {
        for (int64_t i = 0; i < block; ++i) {
          sum[i] = Widen(term[i]);
        }
      } else {
        for (int64_t i = 0; i < block; ++i) {
          sum[i] += Widen(term[i]);
        }
      }
    }
  }
}

}  // namespace

TANDEM_VECTOR_CLONES void Fold(float* accumulator, const float* contributions, int64_t elements,
                               int64_t stride, int num_contributions, bool add) {
  FoldAny(accumulator, contributions, elements, stride, num_contributions, add);
}

TANDEM_VECTOR_CLONES void Fold(double* accumulator, const double* contributions, int64_t elements,
                               int64_t stride, int num_contributions, bool add) {
  FoldAny(accumulator, contributions, elements, stride, num_contributions, add);
}

TANDEM_VECTOR_CLONES void Fold(float* accumulator, const Bf16* contributions, int64_t elements,
                               int64_t stride, int num_contributions, bool add) {
  FoldAny(accumulator, contributions, elements, stride, num_contributions, add);
}

}  // namespace tandem::fsdp
