// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "parallel/process_groups.h"

namespace tandem::parallel {

using Lists = std::vector<RankList>;

// All groups of these sizes. If the sizes are refused, returns none and the test fails.
inline std::map<std::string, Lists> ListsByName(const GridSizes& sizes) {
  const absl::StatusOr<ProcessGroups> groups = ProcessGroups::Make(sizes);
  EXPECT_TRUE(groups.ok()) << groups.status();
  std::map<std::string, Lists> lists;
  if (groups.ok()) {
    for (const GroupKind& kind : groups->kinds()) {
      lists[kind.name] = kind.groups;
    }
  }
  return lists;
}

}  // namespace tandem::parallel
