// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/schedules/divided_job.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

using ::testing::ElementsAre;

TEST(StagesTest, StageHasItsNodesAndTheirData) {
  const std::vector<Stage> stages = TwoStages();
  ASSERT_EQ(stages.size(), 2u);
  const Outline& first = stages[0].outline;
  const Outline& last = stages[1].outline;
  EXPECT_THAT(stages[0].origin.nodes, ElementsAre(0, 1, 2));
  EXPECT_THAT(stages[1].origin.nodes, ElementsAre(3, 4, 5));
  EXPECT_THAT(stages[1].origin.units, ElementsAre(2, 3));
  ASSERT_EQ(first.sent.size(), 1u);
  EXPECT_EQ(first.values[first.sent[0].value].name, "layers.0.mlp.hidden");
  EXPECT_EQ(first.sent[0].stage, 1);
  ASSERT_EQ(last.received.size(), 1u);
  EXPECT_EQ(last.values[last.received[0].value].name, "layers.0.mlp.hidden");
  EXPECT_TRUE(first.received.empty());
  EXPECT_TRUE(last.sent.empty());
  EXPECT_TRUE(first.losses.empty());
  EXPECT_EQ(last.losses.size(), 1u);
  EXPECT_GE(first.batch, 0) << "the embedding reads it";
  EXPECT_GE(last.batch, 0) << "the head reads it";
}

TEST(StagesTest, StageOptionsMatchItsUnitsAndValues) {
  const Outline outline = SmallDecoder();
  BuildOptions options = OptionsFor(outline);
  options.recompute = RecomputeLayers(outline);
  const std::vector<Stage> stages = TwoStages();
  const BuildOptions of_last = OptionsOf(options, stages[1].origin);
  ASSERT_EQ(of_last.units.size(), 2u);
  EXPECT_EQ(of_last.units[0].classes[0].shard_elements, options.units[2].classes[0].shard_elements);
  ASSERT_EQ(of_last.recompute.size(), stages[1].outline.values.size());
  EXPECT_TRUE(of_last.recompute[FindValue(stages[1].outline, "layers.1.attention.qkv")]);
}

TEST(StagesTest, WhatSeveralStagesWouldHaveIsRefused) {
  const auto message = [](const Outline& outline, const std::vector<int>& stage_of) {
    const int num_stages = 1 + *std::max_element(stage_of.begin(), stage_of.end());
    return std::string(DivideIntoStages(outline, stage_of, num_stages).status().message());
  };
  EXPECT_EQ(message(SmallDecoder(2, /*tied=*/true), {0, 0, 0, 1, 1, 1}),
            "several stages use embedding; give it to one");
  EXPECT_EQ(message(SmallDecoder(2), {0, 0, 1, 1, 1, 1}), "several stages use layers.0; give it to one");
  Outline skips = SmallDecoder(2);
  const ValueId embedded = FindValue(skips, "embedding.hidden");
  skips.nodes.back().forward.reads.push_back(embedded);
  EXPECT_EQ(message(skips, {0, 1, 1, 1, 1, 2}), "several other stages read embedding.hidden");
  skips = SmallDecoder(2);
  skips.nodes[1].backward_input.gradient_writes.clear();
  EXPECT_EQ(message(skips, {0, 1, 1, 1, 1, 1}), "stage 1 reads embedding.hidden, and has no gradient for it");
  skips.values[embedded].kind = ValueKind::kHost;
  EXPECT_EQ(message(skips, {0, 1, 1, 1, 1, 1}), "the host reads embedding.hidden, and so does another stage");
}

}  // namespace
}  // namespace tandem::schedules
