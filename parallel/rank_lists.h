#pragma once

#include <vector>

#include "parallel/rank_grid.h"

namespace tandem::parallel {

// Groups that follow from the lists of other groups. Places in a list count; its numbers do not.

// Every list cut into groups of `size` members that stand `stride` places apart: one level of a hierarchical
// split, where `stride` is the product of the sizes of the levels below. {0..7}, size 4, stride 1: {0,1,2,3},
// {4,5,6,7}; size 2, stride 4: {0,4}, {1,5}, {2,6}, {3,7}. Requires that size × stride divides every list's
// length.
std::vector<RankList> SplitLevel(const std::vector<RankList>& lists, int size, int stride);

// `count` neighbouring lists put together, in order. Members are not sorted: group rank is position. Requires
// that `count` divides the number of lists.
std::vector<RankList> Concatenated(const std::vector<RankList>& lists, int count);

// The first member of every list, and the last where there is another.
std::vector<RankList> Ends(const std::vector<RankList>& lists);

// The first member of every list.
std::vector<RankList> Firsts(const std::vector<RankList>& lists);

}  // namespace tandem::parallel
