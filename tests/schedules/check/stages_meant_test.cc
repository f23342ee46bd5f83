// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schedules/check/check.h"
#include "schedules/program/text.h"
#include "tests/schedules/check/edited_stage.h"
#include "tests/schedules/divided_job.h"

namespace tandem::schedules {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Stages together compute the step of the undivided outline.

TEST(StagesMeantTest, StagesMeanTheUndividedStep) {
  for (const int num_stages : {1, 2, 3, 4}) {
    for (const Strategy& strategy : Strategies()) {
      for (const int microbatches : {1, 2, 5}) {
        SCOPED_TRACE(testing::Message() << num_stages << " stages, " << strategy.name << ", " << microbatches
                                        << " microbatches");
        DividedJob job = DenseStages(num_stages, 1, microbatches, strategy.name, 4);
        EXPECT_EQ(job.Check(), "");
        for (int stage = 0; stage < num_stages; ++stage) {
          job.Build(stage, Sequential(job.stages[stage].outline, microbatches));
        }
        EXPECT_EQ(job.Check(), "");
      }
    }
  }
}

Outline MoeWithoutBias(int layers) {
  Outline outline = MoeDecoder(layers);
  for (NodeState& state : outline.states) {
    state.counter = -1;  // states of several stages are not updated
  }
  UseBf16(outline);
  return outline;
}

TEST(StagesMeantTest, StagesWithExpertsAndRecomputeMeanItToo) {
  const Outline outline = MoeWithoutBias(4);
  for (const int num_stages : {2, 4}) {
    for (const bool recomputes : {false, true}) {
      BuildOptions options = OptionsFor(outline, "zero3", 3, 4);
      if (recomputes) {
        options.recompute = RecomputeLayers(outline);
      }
      EXPECT_EQ(DividedJob(outline, ByLayers(outline, num_stages), options).Check(), "")
          << num_stages << " stages" << (recomputes ? ", recomputed" : "");
    }
  }
}

class TwoStagesTest : public ::testing::Test {
 protected:
  Instruction& Find(int stage, const std::string& text) {
    for (Instruction& in : job_.programs[stage].train.instructions) {
      if (ToText(in, job_.stages[stage].outline) == text) {
        return in;
      }
    }
    ADD_FAILURE() << "no instruction " << text;
    return job_.programs[stage].train.instructions.front();
  }

  // With waits that follow from the operands, so that only the meaning can be wrong.
  std::string CheckAnew(int stage) {
    EditedStage edited(job_.stages[stage].outline, job_.programs[stage]);
    WaitAnew(edited, edited.stage.train);
    job_.programs[stage] = edited.stage;
    return job_.Check();
  }

  DividedJob job_ = DenseStages(2, 1, 2);
};

TEST_F(TwoStagesTest, AStageAloneMeansNothing) {
  const Stage& stage = job_.stages[1];
  EXPECT_EQ(std::string(
                CheckStage(stage.outline, OptionsOf(job_.options, stage.origin), job_.programs[1]).message()),
            "meant: train: is stage 1's alone; check all stages together");
}

TEST_F(TwoStagesTest, ASendOfAnotherMicrobatchsValueIsFound) {
  Find(0, "send layers.0.mlp.hidden mb 1").operands[0].buffer =
      Find(0, "send layers.0.mlp.hidden mb 0").operands[0].buffer;
  EXPECT_THAT(CheckAnew(0), StartsWith("meant: train: stage "));
}

TEST_F(TwoStagesTest, SwappedSentGradientIsFound) {
  Find(1, "send layers.0.mlp.hidden mb 1").operands[0].buffer =
      Find(1, "send layers.0.mlp.hidden mb 0").operands[0].buffer;
  EXPECT_THAT(CheckAnew(1), StartsWith("meant: train: stage 0: "));
}

TEST_F(TwoStagesTest, ALaterStagesMistakeNamesIt) {
  Find(1, "reduce layers.1 mb 0").operands[2].mode = Mode::kAdds;
  EXPECT_THAT(CheckAnew(1), StartsWith("meant: train: stage 1: "));
}

TEST_F(TwoStagesTest, ALayerThatNoStageHasIsMissed) {
  Outline longer = SmallDecoder(3);
  EXPECT_EQ(std::string(CheckStages(longer, OptionsFor(longer), job_.stages, job_.programs).message()),
            "meant: stage 1: head is declared otherwise than in the undivided outline");
  job_.undivided.nodes.push_back(job_.undivided.nodes.back());
  job_.undivided.nodes.back().name = "second_head";
  EXPECT_EQ(job_.Check(), "meant: no stage has second_head");
}

TEST_F(TwoStagesTest, ALayerThatTwoStagesHaveIsFound) {
  job_.stages[1].origin.nodes = {1, 2, 5};
  EXPECT_THAT(job_.Check(), StartsWith("meant: stage 1: layers.1.attention is declared otherwise than"));
  job_ = DenseStages(2, 1, 2);
  std::swap(job_.stages[1].origin.units[0], job_.stages[1].origin.units[1]);
  EXPECT_THAT(job_.Check(), StartsWith("meant: stage 1: "));
}

TEST(DivisionTest, RandomOutlinesMeanTheSameInStages) {
  int divided = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Outline outline = RandomOutline(seed);
    std::mt19937_64 random(seed);
    const int first = static_cast<int>(random() % outline.nodes.size());
    std::vector<int> stage_of(outline.nodes.size(), 1);
    std::fill_n(stage_of.begin(), first + 1, 0);
    stage_of.back() = 1;
    if (outline.nodes.size() < 2 || !DivideIntoStages(outline, stage_of, 2).ok()) {
      continue;
    }
    ++divided;
    EXPECT_EQ(DividedJob(outline, stage_of, RandomOptions(outline, seed)).Check(), "") << "seed " << seed;
  }
  EXPECT_GT(divided, 20);
}

}  // namespace
}  // namespace tandem::schedules
