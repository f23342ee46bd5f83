// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tandem::cli {

// Returns ranks in the given order, runs of them as ranges: "0-3", "0-2 5 7" (three and more), and, as Slurm
// writes a step, "0-6:2" (four and more).
std::string RankList(const std::vector<int>& ranks);

// Returns what RankList does; but of more than `most` words only the first and the last: "0-7 64-71 …
// 504-511". Requires most >= 2.
std::string ShortRankList(const std::vector<int>& ranks, size_t most, bool unicode);

}  // namespace tandem::cli
