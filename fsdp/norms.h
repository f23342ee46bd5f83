// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "fsdp/double_double.h"
#include "fsdp/layout.h"

namespace tandem::fsdp {

// Cuts `range`, in flat coordinates, at the multiples of `granule`, and calls `chunk` with each part in
// order. Shards end at multiples of kGranule, so a chunk has the same elements for any number of ranks.
template <typename Function>
void ForEachChunk(Range range, int64_t granule, Function chunk) {
  for (int64_t begin = range.begin; begin < range.end;) {
    const int64_t end = std::min(range.end, (begin / granule + 1) * granule);
    chunk(Range{.begin = begin, .end = end});
    begin = end;
  }
}

// Sum of squares in double, in an order that depends only on the number of elements.
double SumOfSquares(const float* values, int64_t elements);
double SumOfSquares(const double* values, int64_t elements);

// The largest magnitude of the elements that are not NaN; 0 if there are none.
double MaxAbs(const float* values, int64_t elements);
double MaxAbs(const double* values, int64_t elements);

// Sum of squares of the finite elements; adds the number of the other elements to `nonfinite`.
double SumOfFiniteSquares(const float* values, int64_t elements, int64_t& nonfinite);
double SumOfFiniteSquares(const double* values, int64_t elements, int64_t& nonfinite);

}  // namespace tandem::fsdp
