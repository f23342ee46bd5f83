// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/process_groups.h"

namespace tandem::cli {

// Returns a table with one line for each kind: how many groups, their size, the ranks of the first and the
// last groups, and what they are for. width 0: as wide as the content.
std::string GroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode);

// Returns a table with one line for each group, with all its ranks.
std::string EveryGroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode);

// Returns ranks in the given order, runs of them as ranges: "0-3", "0-2 5 7" (three and more), and, as Slurm
// writes a step, "0-6:2" (four and more).
std::string RankList(const std::vector<int>& ranks);

// Returns what RankList does; but of more than `most` words only the first and the last: "0-7 64-71 …
// 504-511". Requires most >= 2.
std::string ShortRankList(const std::vector<int>& ranks, size_t most, bool unicode);

}  // namespace tandem::cli
