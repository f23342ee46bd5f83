// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::parallel {

using RankList = std::vector<int>;

// Ranks laid out on axes, and the groups that vary along some of them. Immutable.
class RankGrid {
 public:
  struct Sizes {
    int tp = 1;
    int cp = 1;
    int ep = 1;
    int dp = 1;
    int pp = 1;
  };

  // rank = offset + Σ index × stride. `order` names axes, joined by '-', in any case; the leftmost varies
  // fastest. Requires what CheckGrid finds no violation in: sizes and an offset in range, an order that
  // parses and leaves out no axis of more than one rank; and ep or cp of size 1 (experts have a grid of their
  // own).
  RankGrid(const Sizes& sizes, std::string_view order, int offset);

  // "dp-cp": every group whose members differ in these axes only. Members and groups count in the order of
  // the grid, whatever the order of the query; every rank is in exactly one group. Requires known, distinct
  // names.
  std::vector<RankList> Groups(std::string_view axes) const;

  // "dp": the length of an axis, and where on it a rank of the grid is.
  int SizeOf(std::string_view axis) const { return AxisNamed(axis).size; }
  int IndexOf(std::string_view axis, int rank) const {
    return (rank - offset_) / AxisNamed(axis).stride % AxisNamed(axis).size;
  }

 private:
  struct Axis {
    std::string name;
    int size = 1;
    int stride = 1;
  };

  const Axis& AxisNamed(std::string_view name) const;

  std::vector<Axis> axes_;  // fastest first
  int offset_ = 0;
};

// Every list cut into groups of `size` members that stand `stride` places apart: one level of a hierarchical
// split, where `stride` is the product of the sizes of the levels below. {0..7}, size 4, stride 1: {0,1,2,3},
// {4,5,6,7}; size 2, stride 4: {0,4}, {1,5}, {2,6}, {3,7}. Requires that size × stride divides every list's
// length.
std::vector<RankList> SplitLevel(const std::vector<RankList>& lists, int size, int stride);

inline constexpr char kAllowedOrder[] = "tp, cp, ep, dp and pp, each at most once, joined by -";

// The names of an order string, in lower case. InvalidArgument: unknown or repeated ones ("tp is there
// twice").
absl::StatusOr<std::vector<std::string>> ParseOrder(std::string_view order);

}  // namespace tandem::parallel
