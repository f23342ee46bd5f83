// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::fsdp {

// This file computes with slices of tensors and with the elements that two slices share. Pure arithmetic;
// torch-free.

// Elements [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  auto operator<=>(const Range&) const = default;
};

Range Intersect(Range a, Range b);

using Shape = std::vector<int64_t>;

// A part of a tensor: one range of indices for each dimension; without ranges, the whole tensor. The elements
// of a slice are numbered in row-major order; "index in a slice" is this number.
using Slice = std::vector<Range>;

// The number of elements of a whole tensor; nullopt if a dim is negative or the product is beyond 2^63.
std::optional<int64_t> NumElements(const Shape& shape);

// Whether `slice` has a range within each dim, or no ranges. Such a slice may be empty.
bool IsSliceOf(const Shape& shape, const Slice& slice);

// The number of elements of a slice. Requires IsSliceOf, and a shape that has NumElements.
int64_t NumElements(const Shape& shape, const Slice& slice);

// Whether two slices of a tensor have an element in common.
bool Overlap(const Shape& shape, const Slice& a, const Slice& b);

// Elements that are consecutive in both of two slices.
struct CommonRun {
  int64_t a = 0;  // index of the first in slice a
  int64_t b = 0;
  int64_t elements = 0;
  bool operator==(const CommonRun&) const = default;
};

// Returns what elements `of_a` of slice a and elements `of_b` of slice b have in common, in order, as runs
// that are as long as possible. If a and b are the same slice, that is one run.
std::vector<CommonRun> CommonRuns(const Shape& shape, const Slice& a, Range of_a, const Slice& b, Range of_b);

}  // namespace tandem::fsdp
