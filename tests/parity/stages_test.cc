// SPDX-License-Identifier: Apache-2.0
#include "plan/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"
#include "trainer/backend.h"

namespace tandem::parity {
namespace {

// A job in stages has the bits of the same job in one, with as many data ranks.

JobOptions Layered(int64_t layers) {
  return {.microbatches_per_rank = 4, .layers = layers, .validate_every_steps = 2};
}

JobRun InStages(const JobOptions& options, int num_stages, const std::vector<int64_t>& layers,
                const RunOptions& run = {}) {
  return RunStages(plan::StagePlans(MakeJob(options), num_stages, layers), run);
}

const std::vector<int64_t> kTwoByTwo = {1, 1, 1, 1};

TEST(StagesTest, TwoStagesOfTwoChunksHaveOneStagesBits) {
  for (const char* strategy : {"zero3", "zero1", "hsdp"}) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(testing::Message() << strategy << ", " << ranks << " data ranks");
      JobOptions options = Layered(4);
      options.strategy = strategy;
      options.replicas = ranks > 1 ? ReplicasOf(strategy) : 1;
      options.ranks = ranks;
      if (strategy[0] == 'h' && ranks == 1) {
        continue;
      }
      const JobRun run = InStages(options, 2, kTwoByTwo, {.fill_with_nan = true});
      ExpectSameBits(RunJob(MakeJob(options)), run);
      // Rank 0 has the first and the third of four chunks. Three steps have four microbatches each.
      EXPECT_EQ(run.collectives.at("pp/1-0/gradients").size(), 3u * 4u * 2u);
      EXPECT_EQ(run.collectives.at("pp/0-1/gradients").size(), 3u * 4u);
      EXPECT_GT(run.collectives.at("pp/0-1/values").size(), 3u * 4u * 2u) << "validations send values";
    }
  }
}

TEST(StagesTest, AnyStagesAndChunksHaveOneStagesBits) {
  struct Division {
    int stages;
    std::vector<int64_t> layers;
  };
  for (const auto& [stages, layers] : {Division{2, {3, 3}}, Division{3, {1, 2, 3}},
                                       Division{3, {1, 1, 1, 1, 1, 1}}, Division{2, {0, 2, 3, 1}}}) {
    for (const int microbatches : {1, 3}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << layers.size() << " chunks, " << microbatches
                                      << " microbatches");
      JobOptions options = Layered(6);
      options.microbatches_per_rank = microbatches;
      ExpectSameBits(RunJob(MakeJob(options)), InStages(options, stages, layers));
    }
  }
}

TEST(StagesTest, Bf16FrozenAndRecomputedLayersHaveOneStagesBits) {
  JobOptions options = Layered(4);
  options.ranks = 2;
  options.precision = "compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_BF16";
  options.frozen = "embedding, layers.1";
  options.recompute = "layer";
  options.end_of_document = ' ';
  options.count_first_token = false;
  options.canaries = true;
  ExpectSameBits(RunJob(MakeJob(options)), InStages(options, 2, kTwoByTwo));
}

TEST(StagesTest, ExpertsOverTwoRanksHaveOneStagesBits) {
  JobOptions options = SparseJob();
  options.layers = 4;
  options.ranks = 4;  // of a stage: eight in all
  options.expert_parallel = 2;
  options.microbatches_per_rank = 3;
  options.fp64 = true;
  options.validate_every_steps = 2;
  for (const char* chunks : {"fixed", "exact"}) {
    SCOPED_TRACE(chunks);
    options.chunks = chunks;
    const JobRun one = RunJob(MakeJob(options));
    const JobRun run = InStages(options, 2, kTwoByTwo);
    ExpectSameBits(one, run);
    ASSERT_EQ(run.steps.back().norms().experts_size(), 4);
    EXPECT_EQ(run.steps.back().norms().experts(3).DebugString(),
              one.steps.back().norms().experts(3).DebugString());
  }
}

TEST(StagesTest, RouterBiasesMoveByCountsOfTheirStage) {
  const JobOptions options = {.ranks = 2,
                              .microbatches_per_rank = 2,
                              .steps = 4,
                              .layers = 4,
                              .model_type = "deepseek_v3",
                              .num_experts = 8,
                              .experts_per_token = 4,
                              .router_aux_loss = 0,
                              .bias_update_rate = 0.05};
  // The first layer is dense: the stages have one router and two.
  ExpectSameBits(RunJob(MakeJob(options)), InStages(options, 2, kTwoByTwo));
}

TEST(StagesTest, CheckpointsGoOnInAnyStages) {
  const auto on = [](const std::string& folder, const std::string& resume) {
    JobOptions options = OnRanks(2, folder);
    options.layers = 4;
    options.model_type = "deepseek_v3";
    options.num_experts = 8;
    options.experts_per_token = 4;
    options.router_aux_loss = 0;
    options.bias_update_rate = 0.05;
    options.resume = resume;
    return options;
  };
  const TemporaryFolder whole_folder;
  const JobRun whole = RunJob(MakeJob(on(whole_folder.path(), "")));
  for (const bool first_in_stages : {true, false}) {
    SCOPED_TRACE(first_in_stages);
    const TemporaryFolder folder;
    const JobOptions options = on(folder.path(), "");
    const RunOptions ask = Ask(1, trainer::kRequestStop, 5);
    const JobRun first =
        first_in_stages ? InStages(options, 2, kTwoByTwo, ask) : RunJob(MakeJob(options), ask);
    EXPECT_TRUE(first.stopped);
    const JobOptions again = on(folder.path(), "newest");
    const JobRun second = first_in_stages ? RunJob(MakeJob(again)) : InStages(again, 3, {1, 1, 2});
    EXPECT_EQ(second.resumed_step, 2);
    ExpectSameBits(Tail(whole, 3), second);
  }
}

// Gloo makes a group when all of its members have come, so that stages must make theirs in one order.
TEST(StagesTest, StagesMeetOverGloo) {
  const JobOptions options = Layered(6);
  ExpectSameBits(RunJob(MakeJob(options)), InStages(options, 3, {1, 1, 1, 1, 1, 1}, {.make_backend = [](int) {
                                                      return trainer::MakeCpuBackend();
                                                    }}));
}

TEST(StagesTest, WhatIsNotBuiltInStagesIsRefused) {
  const auto refusal = [](const JobOptions& options) -> std::string {
    try {
      plan::StagePlans(MakeJob(options), 2, kTwoByTwo);
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  JobOptions options = Layered(4);
  options.tied = true;
  EXPECT_EQ(refusal(options),
            "not built yet: model.tie_word_embeddings: true in several stages, of which the first would have "
            "the matrix, and the last a copy with gradients of its own; use false, or one stage");
  options = Layered(3);
  EXPECT_EQ(refusal(options), "the chunks have other layers than the 3 of the model");
}

}  // namespace
}  // namespace tandem::parity
