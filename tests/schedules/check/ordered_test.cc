// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedules/check/edited_stage.h"

namespace tandem::schedules {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Waits between a forward that reads parameters and the gather that writes them.
TEST(OrderedTest, AForwardWaitsForItsGather) {
  EditedStage edited(SmallDecoder(1));
  edited.Find(edited.stage.begin, "forward embedding mb 0").waits.clear();
  EXPECT_THAT(edited.Check(), StartsWith("ordered: begin: "));
  EXPECT_THAT(edited.Check(), HasSubstr("(forward embedding mb 0) and "));
  EXPECT_THAT(edited.Check(), HasSubstr("both touch "));
  EXPECT_THAT(edited.Check(), HasSubstr(", and nothing makes the first wait for the second"));
}

TEST(OrderedTest, IssuingThreadWaitsForSizesBeforeReaders) {
  EditedStage edited(MoeDecoder(1));
  Program& train = edited.stage.train;
  EditedStage::Remove(train, edited.IndexOf(train, "host-wait layers.0.sizes mb 0"));
  // The stream waits for them; that is not enough.
  edited.Find(train, "forward layers.0.dispatch mb 0").waits = {
      {edited.IndexOf(train, "forward layers.0.permute mb 0")}};
  EXPECT_THAT(edited.Check(), StartsWith("ordered: train: "));
  EXPECT_THAT(edited.Check(),
              HasSubstr("is issued by what layers.0.sizes mb 0 says, and the issuing thread has not "
                        "waited for "));
}

// The copy of run n may still be in flight when run n + 1 writes what it copies.
TEST(OrderedTest, RunDoesNotWaitForFormerCopies) {
  EditedStage edited(SmallDecoder(1));
  Instruction& report = edited.Find(edited.stage.update, "report");
  report.operands.front().former = true;  // which lies where the next run's are
  EXPECT_THAT(edited.Check(), StartsWith("ordered: "));
  EXPECT_THAT(edited.Check(), HasSubstr("and the former run both touch embedding update norms"));
}

TEST(OrderedTest, AnInstructionDoesNotChangeWhatItReads) {
  Outline outline = SmallDecoder(1);
  // Its backward adds to the gradient that it reads.
  outline.nodes[FindNode(outline, "layers.0.mlp")].backward_input.gradient_writes.push_back(
      FindValue(outline, "layers.0.mlp.hidden"));
  const EditedStage edited(outline);
  EXPECT_THAT(edited.Check(), StartsWith("ordered: train: "));
  EXPECT_THAT(edited.Check(),
              HasSubstr("(backward-input layers.0.mlp mb 0) touches d(layers.0.mlp.hidden) mb 0 by two "
                        "operands, one of which changes it"));
}

}  // namespace
}  // namespace tandem::schedules
