// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "schedules/build/program_builder.h"
#include "schedules/check/check.h"
#include "schedules/program/text.h"
#include "tests/schedules/divided_job.h"
#include "tests/schedules/proven_stage.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

// To accept a new text, read the difference and copy the file that the failure names.
void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = std::string(GOLDEN_DIRECTORY) + "/" + name;
  std::ifstream file(path);
  std::stringstream expected;
  expected << file.rdbuf();
  if (expected.str() != text) {
    const std::string actual = testing::TempDir() + name;
    std::ofstream(actual) << text;
    ADD_FAILURE() << path << " differs from what is built now, which is in " << actual;
  }
}

TEST(GoldenTest, Zero3OfTwoLayersAndTwoMicrobatches) {
  const Outline outline = SmallDecoder();
  const StagePrograms stage = ProvenStage(outline, OptionsFor(outline));
  ExpectGolden("zero3_train.txt", ToText(stage.train, outline));
  ExpectGolden("zero3_update.txt", ToText(stage.update, outline));
  ExpectGolden("zero3_validate.txt", ToText(stage.validate, outline));
}

TEST(GoldenTest, Zero1AndZero2AccumulateTwoMicrobatches) {
  const Outline outline = SmallDecoder(1);
  for (const char* strategy : {"zero1", "zero2"}) {
    const StagePrograms stage = ProvenStage(outline, OptionsFor(outline, strategy, 2, 2));
    ExpectGolden(std::string(strategy) + "_train.txt", ToText(stage.train, outline));
  }
}

TEST(GoldenTest, HsdpOfTwoTimesTwoInBf16) {
  Outline outline = SmallDecoder(1);
  UseBf16(outline);
  const StagePrograms stage = ProvenStage(outline, OptionsFor(outline, "hsdp", 2, 4));
  ExpectGolden("hsdp_train.txt", ToText(stage.train, outline));
}

// Warm-up, two pairs of microbatches and more, cool-down; an odd number of layers has a middle one that both
// microbatches are in at once.
TEST(GoldenTest, FourMicrobatchesOverlappedOnThreeLayers) {
  const Outline outline = MoeDecoder(3);
  BuildOptions options = OptionsFor(outline, "zero3", 4, 4);
  options.hold = 1;
  ExpectGolden("overlapped_train.txt",
               ToText(ProvenStage(outline, options, Schedule::kOverlapped).train, outline));
}

// Attention and the head in segments: what they access in rings is copied, what waits is the first of each.
TEST(GoldenTest, AttentionAndHeadAreReplayed) {
  const Outline outline = SmallDecoder(1);
  BuildOptions options = OptionsFor(outline);
  for (const Node& node : outline.nodes) {
    options.replayed.push_back(node.kind == "attention" || node.kind == "head");
  }
  ExpectGolden("replayed_train.txt", ToText(ProvenStage(outline, options).train, outline));
}

TEST(GoldenTest, WholeLayersAreRecomputed) {
  const Outline dense = SmallDecoder();
  BuildOptions options = OptionsFor(dense, "zero3", 1);
  options.recompute = RecomputeLayers(dense);
  ExpectGolden("recompute_train.txt", ToText(ProvenStage(dense, options).train, dense));

  const Outline moe = MoeDecoder();
  options = OptionsFor(moe, "zero3", 2, 4);
  options.hold = 1;
  options.recompute = RecomputeLayers(moe);
  ExpectGolden("recompute_overlapped_train.txt",
               ToText(ProvenStage(moe, options, Schedule::kOverlapped).train, moe));
}

TEST(GoldenTest, FrozenTiedUnusedUnitsAndTwoLosses) {
  Outline outline = UnusualDecoder();
  UseBf16(outline);
  const StagePrograms stage = ProvenStage(outline, OptionsFor(outline, "zero3", 1));
  ExpectGolden("unusual_train.txt", ToText(stage.train, outline));
}

TEST(GoldenTest, OneForwardOneBackwardOnTwoStages) {
  for (const Stage& of : TwoStages()) {
    const Outline& outline = of.outline;
    const BuildOptions options = OptionsFor(outline, "zero3", 3);
    const StagePrograms stage = BuildStage(outline, options, Pipelined(outline, 2, 3), {}).value();
    EXPECT_EQ(CheckAlone(outline, options, stage), absl::OkStatus());
    ExpectGolden("1f1b_stage" + std::to_string(outline.stage) + "_train.txt", ToText(stage.train, outline));
  }
}

}  // namespace
}  // namespace tandem::schedules
