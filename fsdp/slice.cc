// SPDX-License-Identifier: Apache-2.0
#include "fsdp/slice.h"

#include <algorithm>

namespace tandem::fsdp {
namespace {

// Returns the slice with a range for each dim, of which there is at least one.
Slice WithRanges(const Shape& shape, const Slice& slice) {
  if (shape.empty()) {
    return {{.begin = 0, .end = 1}};
  }
  if (!slice.empty()) {
    return slice;
  }
  Slice whole;
  for (const int64_t dim : shape) {
    whole.push_back({.begin = 0, .end = dim});
  }
  return whole;
}

}  // namespace

Range Intersect(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {.begin = begin, .end = std::max(begin, std::min(a.end, b.end))};
}

std::optional<int64_t> NumElements(const Shape& shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements)) {
      return std::nullopt;
    }
  }
  return elements;
}

bool IsSliceOf(const Shape& shape, const Slice& slice) {
  if (slice.empty()) {
    return true;
  }
  bool within = slice.size() == shape.size();
  for (size_t d = 0; within && d < shape.size(); ++d) {
    within = 0 <= slice[d].begin && slice[d].begin <= slice[d].end && slice[d].end <= shape[d];
  }
  return within;
}

int64_t NumElements(const Shape& shape, const Slice& slice) {
  int64_t elements = 1;
  for (const Range range : WithRanges(shape, slice)) {
    elements *= range.size();
  }
  return elements;
}

bool Overlap(const Shape& shape, const Slice& a, const Slice& b) {
  const Slice of_a = WithRanges(shape, a);
  const Slice of_b = WithRanges(shape, b);
  bool overlap = true;
  for (size_t d = 0; d < of_a.size(); ++d) {
    overlap = overlap && !Intersect(of_a[d], of_b[d]).empty();
  }
  return overlap;
}

std::vector<CommonRun> CommonRuns(const Shape& shape, const Slice& a, Range of_a, const Slice& b,
                                  Range of_b) {
  if (!Overlap(shape, a, b)) {
    return {};
  }
  const Slice box_a = WithRanges(shape, a);
  const Slice box_b = WithRanges(shape, b);
  Slice common;
  for (size_t d = 0; d < box_a.size(); ++d) {
    common.push_back(Intersect(box_a[d], box_b[d]));
  }
  // Both slices have the same ranges in the dims after `inner`, so the elements that they share of dim
  // `inner` are contiguous.
  size_t inner = common.size() - 1;
  int64_t row = 1;  // elements of one index of that dim
  while (inner > 0 && box_a[inner] == box_b[inner]) {
    row *= common[inner].size();
    --inner;
  }
  std::vector<CommonRun> runs;
  std::vector<int64_t> index;  // of the dims before `inner`
  for (size_t d = 0; d < inner; ++d) {
    index.push_back(common[d].begin);
  }
  const auto first_in = [&](const Slice& box) {
    int64_t first = 0;
    for (size_t d = 0; d <= inner; ++d) {
      first = first * box[d].size() + (d < inner ? index[d] : common[d].begin) - box[d].begin;
    }
    return first * row;
  };
  for (bool more = true; more;) {
    const int64_t in_a = first_in(box_a);
    const int64_t in_b = first_in(box_b);
    const int64_t elements = common[inner].size() * row;
    const Range asked_a = Intersect(of_a, {.begin = in_a, .end = in_a + elements});
    const Range asked_b = Intersect(of_b, {.begin = in_b, .end = in_b + elements});
    const Range run = Intersect({.begin = asked_a.begin - in_a, .end = asked_a.end - in_a},
                                {.begin = asked_b.begin - in_b, .end = asked_b.end - in_b});
    if (!run.empty()) {
      const CommonRun next{.a = in_a + run.begin, .b = in_b + run.begin, .elements = run.size()};
      CommonRun* const last = runs.empty() ? nullptr : &runs.back();
      if (last != nullptr && last->a + last->elements == next.a && last->b + last->elements == next.b) {
        last->elements += next.elements;
      } else {
        runs.push_back(next);
      }
    }
    more = false;
    for (size_t d = inner; d-- > 0 && !more;) {  // the next index, the last dim first
      more = ++index[d] < common[d].end;
      if (!more) {
        index[d] = common[d].begin;
      }
    }
  }
  return runs;
}

}  // namespace tandem::fsdp
