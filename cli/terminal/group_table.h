#pragma once

#include <string>
#include <vector>

#include "parallel/process_groups.h"

namespace tandem::cli {

// One line a kind: how many groups, of how many ranks, the first of them and the last, and what they are for.
// width 0: as wide as the content.
std::string GroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode);

// One line a group, with all its ranks.
std::string EveryGroupTable(const std::vector<parallel::GroupKind>& kinds, int width, bool unicode);

}  // namespace tandem::cli
