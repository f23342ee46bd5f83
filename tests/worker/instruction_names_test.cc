// SPDX-License-Identifier: Apache-2.0
#include "worker/instruction_names.h"

#include <gtest/gtest.h>

namespace tandem::worker {
namespace {

TEST(InstructionNamesTest, NamesHaveOpcodeAndMicrobatch) {
  InstructionNames names;
  names.Add("forward layers.0.mlp", "forward", 0);
  names.Add("unshard layers.0", "unshard", -1);
  names.Add("forward layers.0.mlp", "forward", 12);
  ASSERT_EQ(names.size(), 3);
  EXPECT_EQ(names.Text(0), "forward layers.0.mlp mb 0");
  EXPECT_EQ(names.Phrase(0), "forward of microbatch 0");
  EXPECT_EQ(names.Text(1), "unshard layers.0");
  EXPECT_EQ(names.Phrase(1), "unshard layers.0");
  EXPECT_EQ(names.Text(2), "forward layers.0.mlp mb 12");
  EXPECT_EQ(names.Phrase(2), "forward of microbatch 12");
}

}  // namespace
}  // namespace tandem::worker
