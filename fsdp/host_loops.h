// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "fsdp/bf16.h"
#include "fsdp/layout.h"
#include "fsdp/optimizer.h"

// The host's loops over elements of a shard.
namespace tandem::fsdp {

// accumulator[i] = (((accumulator[i] + c0[i]) + c1[i]) + …), with contribution r at contributions + r *
// stride. If add == false, the sum starts with c0 instead of accumulator[i]. Elements are independent, so the
// bits do not depend on how they are cut into calls.
void Fold(float* accumulator, const float* contributions, int64_t elements, int64_t stride,
          int num_contributions, bool add);
void Fold(double* accumulator, const double* contributions, int64_t elements, int64_t stride,
          int num_contributions, bool add);
// bfloat16 contributions are added in float.
void Fold(float* accumulator, const Bf16* contributions, int64_t elements, int64_t stride,
          int num_contributions, bool add);

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

// Updates weights and moments of `elements` elements. Output: mean = sum / divisor, not clipped; update = new
// - old weight. mean and update may both be null. The arrays do not overlap.
void AdamWStep(const AdamWScalars<float>& scalars, int64_t elements, const float* sum, float* weight,
               float* exp_avg, float* exp_avg_sq, float* mean, float* update);
void AdamWStep(const AdamWScalars<double>& scalars, int64_t elements, const double* sum, double* weight,
               double* exp_avg, double* exp_avg_sq, double* mean, double* update);

// published[i] = weight[i], rounded.
void Publish(const float* weight, int64_t elements, Bf16* published);

// Computes only `mean`, for steps that do not change the weights.
void MeanGradient(const AdamWScalars<float>& scalars, int64_t elements, const float* sum, float* mean);
void MeanGradient(const AdamWScalars<double>& scalars, int64_t elements, const double* sum, double* mean);

}  // namespace tandem::fsdp
