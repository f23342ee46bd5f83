// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// The biases by which routers choose experts: a state of the router's node that moves once a step, by what
// all ranks have counted.

constexpr double kRate = 0.05;

JobOptions Biased(int64_t steps) {
  return {.steps = steps,
          .model_type = "deepseek_v3",
          .num_experts = 8,
          .experts_per_token = 4,
          .router_aux_loss = 0,
          .bias_update_rate = kRate};
}

std::vector<float> BiasesOf(const JobRun& run, const std::string& layer = "layers.1") {
  const std::string& bytes = run.arrays.at(layer + ".route.bias");
  std::vector<float> biases(bytes.size() / sizeof(float));
  std::memcpy(biases.data(), bytes.data(), bytes.size());
  return biases;
}

// Each step moves each bias by the rate, towards those experts that got less than the mean.
TEST(ExpertBiasTest, BiasesFollowTheLoadThatReportsShow) {
  JobOptions options = Biased(5);
  options.ranks = 2;
  options.validate_every_steps = 2;  // whose tokens do not count
  options.recompute = "layer";       // nor do those that are routed again
  const JobRun run = RunJob(MakeJob(options));
  std::vector<float> expected(8);
  for (const v1::StepReport& step : run.steps) {
    const v1::ExpertLoad& load = step.norms().experts(0);
    int64_t sum = 0;
    for (const int64_t count : load.tokens()) {
      sum += count;
    }
    for (int e = 0; e < load.tokens_size(); ++e) {
      const int64_t missing = sum - 8 * load.tokens(e);
      expected[e] += static_cast<float>(missing > 0 ? kRate : missing < 0 ? -kRate : 0);
    }
  }
  EXPECT_EQ(BiasesOf(run), expected);
}

TEST(ExpertBiasTest, BiasesOfFrozenLayersStayAsTheyAre) {
  JobOptions options = Biased(3);
  options.ranks = 2;
  options.layers = 3;
  options.frozen = "layers.1";
  const JobRun sequential = RunJob(MakeJob(options));
  EXPECT_EQ(BiasesOf(sequential, "layers.1"), std::vector<float>(8));
  EXPECT_NE(BiasesOf(sequential, "layers.2"), std::vector<float>(8));
  options.overlap = true;
  ExpectSameBits(sequential, RunJob(MakeJob(options)));
  options.frozen = "layers.1,layers.2";  // none moves
  EXPECT_EQ(BiasesOf(RunJob(MakeJob(options)), "layers.2"), std::vector<float>(8));
}

TEST(ExpertBiasTest, SchedulesAndAllowedOrdersGiveTheSameBits) {
  JobOptions options = Biased(2);
  options.ranks = 2;
  options.microbatches_per_rank = 2;
  const JobRun ordinary = RunJob(MakeJob(options));
  ExpectSameBitsInOrders(ordinary, MakeJob(options), 6);
  options.overlap = true;
  ExpectSameBits(ordinary, RunJob(MakeJob(options)));
}

// In fp64, where the choices of both are the same. The tokens of a rank are counted where they are routed.
TEST(ExpertBiasTest, ExpertParallelismChangesNoBias) {
  JobOptions options = Biased(4);
  options.fp64 = true;
  options.ranks = 2;
  const JobRun every = RunJob(MakeJob(options));
  options.expert_parallel = 2;
  for (const bool overlap : {false, true}) {
    options.overlap = overlap;
    const JobRun shared = RunJob(MakeJob(options));
    EXPECT_EQ(shared.arrays.at("layers.1.route.bias"), every.arrays.at("layers.1.route.bias"));
    for (size_t i = 0; i < every.steps.size(); ++i) {
      EXPECT_THAT(shared.steps[i].norms().experts(0).tokens(),
                  testing::ElementsAreArray(every.steps[i].norms().experts(0).tokens()));
      EXPECT_NEAR(shared.steps[i].loss(), every.steps[i].loss(), 1e-12 * every.steps[i].loss());
    }
  }
}

TEST(ExpertBiasTest, AJobResumesBitwiseOnOtherRanks) {
  JobOptions options = Biased(6);
  options.ranks = 2;
  options.microbatches_per_rank = 2;
  ExpectSameBitsAfter(3, options, {SharedAmong(1, options), SharedAmong(4, options)});
}

std::string ErrorOf(const JobOptions& options) {
  try {
    RunJob(MakeJob(options));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ExpertBiasTest, JobAndCheckpointMustAgreeOnBiases) {
  const TemporaryFolder folder;
  for (const double saved : {0.0, kRate}) {
    JobOptions options = Biased(1);
    options.warmup_steps = 0;
    options.bias_update_rate = saved;
    options.checkpoint_directory = folder.path() + (saved > 0 ? "/with" : "/without");
    std::filesystem::create_directory(options.checkpoint_directory);
    RunJob(MakeJob(options));
    options.resume = options.checkpoint_directory + "/step-1";
    options.checkpoint_directory += "/next";
    options.steps = 2;
    options.bias_update_rate = saved > 0 ? 0 : kRate;
    EXPECT_EQ(ErrorOf(options),
              "checkpoint.resume: " + options.resume + " was saved " + (saved > 0 ? "with" : "without") +
                  " biases of routers (model.layers.1.mlp.gate.e_score_correction_bias), and this job has " +
                  (saved > 0 ? "none; allowed: model.moe: {router_bias_update_rate: more than 0}"
                             : "some; allowed: model.moe: {router_bias_update_rate: 0}") +
                  ", or start in another folder");
  }
}

}  // namespace
}  // namespace tandem::parity
