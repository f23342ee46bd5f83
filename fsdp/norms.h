// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "fsdp/double_double.h"
#include "fsdp/layout.h"

namespace tandem::fsdp {

// Calls `chunk(range)` for each part of `range` between multiples of the granule of the flat buffer. Shards
// end at such multiples, so a chunk of a parameter is the same elements for any number of ranks.
template <typename Function>
void ForEachChunk(Range range, int64_t granule, Function chunk) {
  for (int64_t begin = range.begin; begin < range.end;) {
    const int64_t end = std::min(range.end, (begin / granule + 1) * granule);
    chunk(Range{.begin = begin, .end = end});
    begin = end;
  }
}

// Sum of squares in double, in an order that depends on the number of elements alone.
double SumOfSquares(const float* values, int64_t elements);
double SumOfSquares(const double* values, int64_t elements);

// The largest magnitude of the elements that are not NaN; 0 of none.
double MaxAbs(const float* values, int64_t elements);
double MaxAbs(const double* values, int64_t elements);

// Sum of squares of the finite ones; adds the number of the others to `nonfinite`.
double SumOfFiniteSquares(const float* values, int64_t elements, int64_t& nonfinite);
double SumOfFiniteSquares(const double* values, int64_t elements, int64_t& nonfinite);

}  // namespace tandem::fsdp
