#pragma once

#include <string>
#include <vector>

namespace tandem::cli {

// "0-3", "0 2 4 6", "0-2 5": runs of three and more as ranges. In the given order.
std::string RankList(const std::vector<int>& ranks);

}  // namespace tandem::cli
