// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/process_groups.h"

namespace tandem::cli {

// A table with one line a kind: how many groups, of how many ranks, the first and the last of them, and what
// they are for.
// width 0: as wide as the content.
std::string GroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode);

// A table with one line a group, with all its ranks.
std::string EveryGroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode);

// "0-3", "0-6:2", "0-2 5 7": runs of three and more as ranges, with a step (as Slurm writes it) from four on.
// Ranks stay in the given order.
std::string RankList(const std::vector<int>& ranks);

// The same, with only the first and the last of more than `most` of its words: "0-7 64-71 … 504-511".
// Requires most >= 2.
std::string ShortRankList(const std::vector<int>& ranks, size_t most, bool unicode);

}  // namespace tandem::cli
