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

}  // namespace tandem::cli
