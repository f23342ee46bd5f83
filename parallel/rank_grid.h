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

  // rank = offset + Σ index × stride. `order` has the names of axes in any case, joined by '-'; the leftmost
  // varies fastest. Requires sizes, order and offset that CheckGrid accepts: sizes and ranks in range, and an
  // order that parses and has every axis of more than one rank. Also requires ep or cp to be 1, because
  // experts have their own grid.
  RankGrid(const Sizes& sizes, std::string_view order, int offset);

  // The groups along `axes`, such as "dp-cp": the members of a group differ only in these axes, and every
  // rank is in exactly one group. Members and groups are in the order of the grid, whatever the order of
  // `axes`. Requires known, distinct names.
  std::vector<RankList> Groups(std::string_view axes) const;

  // The length of an axis, such as "dp", and the index of a rank of the grid on it.
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

// Splits every list into groups of `size` members that are `stride` positions apart. This is one level of a
// hierarchical split; `stride` is the product of the sizes of the levels below. {0..7}, size 4, stride 1:
// {0,1,2,3}, {4,5,6,7}; size 2, stride 4: {0,4}, {1,5}, {2,6}, {3,7}. Requires that size × stride divides the
// length of every list.
std::vector<RankList> SplitLevel(const std::vector<RankList>& lists, int size, int stride);

inline constexpr char kAllowedOrder[] = "tp, cp, ep, dp and pp, each at most once, joined by -";

// Splits an order string into names in lower case. Returns InvalidArgument for an unknown or repeated name
// ("tp is listed twice").
absl::StatusOr<std::vector<std::string>> ParseOrder(std::string_view order);

}  // namespace tandem::parallel
