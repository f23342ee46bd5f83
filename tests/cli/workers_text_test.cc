// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cli/cluster/local_cluster.h"

namespace tandem::cli {
namespace {

TEST(WorkersTextTest, CountsAreSingularOrPlural) {
  EXPECT_EQ(WorkersText(1, 1, 0), "1 worker with 1 CPU slot");
  EXPECT_EQ(WorkersText(1, 2, 0), "1 worker with 2 CPU slots");
  EXPECT_EQ(WorkersText(2, 1, 0), "2 workers with 1 CPU slot each");
}

TEST(WorkersTextTest, GpusAreNamedPerMachine) {
  EXPECT_EQ(WorkersText(1, 1, 1), "1 worker with 1 GPU slot and 1 CPU slot");
  EXPECT_EQ(WorkersText(1, 2, 8), "1 worker with 8 GPU slots and 2 CPU slots");
  EXPECT_EQ(WorkersText(2, 4, 8), "2 workers with 4 CPU slots each, and 8 GPU slots that they share");
}

}  // namespace
}  // namespace tandem::cli
