// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/data/prepared_folder.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "trainer/failure.h"
#include "trainer/rank_text.h"

namespace tandem::parity {
namespace {

JobOptions WithoutFirstTokens() {
  JobOptions options{.microbatches_per_rank = 4, .steps = 4, .validate_every_steps = 2};
  options.count_first_token = false;
  options.end_of_document = ' ';
  return options;
}

TEST(TargetsTest, UncountedTargetsGiveAnyRanksTheSameBits) {
  for (const char* strategy : {"zero2", "zero3"}) {
    JobOptions options = WithoutFirstTokens();
    options.strategy = strategy;
    const JobRun one = ExpectSameBitsOnRanks(options, {2, 4}, /*microbatches=*/4);
    const double counted = one.steps[0].scalars().at("counted_tokens");
    EXPECT_GT(counted, 0);
    EXPECT_LT(counted, static_cast<double>(one.steps[0].tokens()));
  }
}

// Tokens of a prepared folder, of which about `percent` in a hundred do not count.
TEST(TargetsTest, MaskedTargetsGiveAnyRanksTheSameBits) {
  std::mt19937 random(7);
  std::vector<data::Document> documents(80);
  for (data::Document& document : documents) {
    for (uint32_t i = 0; i < 20 + random() % 60; ++i) {
      document.push_back(random() % 7 == 0 ? 3 : static_cast<int64_t>(random() % 200));
    }
  }
  for (const uint32_t percent : {0, 30, 99}) {
    SCOPED_TRACE(percent);
    const TemporaryFolder folder;
    JobOptions options{.microbatches_per_rank = 12, .steps = 3, .validate_every_steps = 3};
    options.text = data::WriteDataset(folder, "set", {documents});
    const JobRun plain = RunJob(MakeJob(options));
    std::vector<bool> counted;
    for (const data::Document& document : documents) {
      for (size_t i = 0; i < document.size(); ++i) {
        counted.push_back(random() % 100 >= percent);
      }
    }
    data::WriteMasks(folder, "set", {documents}, {counted});
    const JobRun one = ExpectSameBitsOnRanks(options, {2, 3, 4});
    if (percent == 0) {
      EXPECT_TRUE(one.arrays == plain.arrays) << "where all count, the bits are those without a mask";
      EXPECT_FALSE(one.steps[0].scalars().contains("counted_tokens"));
    } else {
      EXPECT_NEAR(one.steps[0].scalars().at("counted_tokens"),
                  static_cast<double>(one.steps[0].tokens()) * (100 - percent) / 100, 45);
    }
  }
}

// Experts, whose routers have losses of their own. Of the first microbatch no target counts, and of the
// held-out end all do.
TEST(TargetsTest, MaskedExpertTargetsKeepBitsOnAnyRanks) {
  std::mt19937 random(11);
  std::vector<data::Document> documents(60, data::Document(30));
  for (data::Document& document : documents) {
    std::generate(document.begin(), document.end(), [&] { return static_cast<int64_t>(random() % 200); });
  }
  for (const char* const strategy : {"zero2", "zero3"}) {
    for (const uint32_t percent : {0, 30, 99}) {
      SCOPED_TRACE(testing::Message() << strategy << ", " << percent);
      const TemporaryFolder folder;
      JobOptions options = SparseJob();
      options.strategy = strategy;
      options.microbatches_per_rank = 4;
      options.steps = 2;
      options.micro_batch_size = 8;
      options.validate_every_steps = 2;
      options.router_aux_loss = 0.5;
      options.shuffle = false;
      options.text = data::WriteDataset(folder, "set", {documents});
      const JobRun plain = RunJob(MakeJob(options));
      std::vector<bool> counted(1800);
      for (size_t token = 0; token < counted.size(); ++token) {
        counted[token] = percent == 0 || token >= 1600 || (token >= 72 && token * 37 % 100 >= percent);
      }
      data::WriteMasks(folder, "set", {documents}, {counted});
      const JobRun one = ExpectSameBitsOnRanks(options, {2, 4}, /*microbatches=*/4);
      EXPECT_EQ(one.arrays == plain.arrays, percent == 0);
    }
  }
}

TEST(TargetsTest, AValidationWithoutTargetsIsRefused) {
  const TemporaryFolder folder;
  const std::vector<data::Document> documents(80, data::Document(40, 5));
  JobOptions options{.steps = 1, .warmup_steps = 0, .validate_every_steps = 1};
  options.text = data::WriteDataset(folder, "set", {documents});
  std::vector<bool> counted(3200, true);
  std::fill(counted.begin() + 1600, counted.end(), false);
  data::WriteMasks(folder, "set", {documents}, {counted});
  try {
    const trainer::RankText text(MakeJob(options), 0);
    FAIL() << "it is not refused";
  } catch (const trainer::UserError& error) {
    EXPECT_THAT(
        error.what(),
        testing::HasSubstr("data.validation_fraction: none of the tokens that a validation reads counts "
                           "as a target; name other text, or set training.validate_every_steps to 0"));
  }
}

// Where all weights are 0, each target that counts has the loss ln V, however many do not count.
TEST(TargetsTest, LossesAreMeansOverTheTargetsThatCount) {
  plan::JobPlan plan = MakeJob(WithoutFirstTokens());
  plan.model.initializer_range = 0;
  const JobRun run = RunJob(plan);
  const double expected = std::log(static_cast<double>(plan.model.vocab_size));
  EXPECT_NEAR(run.start->scalars().at("validation_loss"), expected, 1e-5);
  EXPECT_NEAR(run.steps[0].loss(), expected, 1e-5);
}

// A microbatch has two windows; there are 65 or so, and more are wanted.
TEST(TargetsTest, AValidationTakesEachWindowOnce) {
  const auto loss = [](int64_t sequences, int ranks) {
    JobOptions options{
        .ranks = ranks, .steps = 1, .warmup_steps = 0, .fp64 = true, .validate_every_steps = 1};
    options.micro_batch_size = sequences;
    options.validation_batches = 100;
    return RunJob(MakeJob(options)).start->scalars().at("validation_loss");
  };
  const double one_by_one = loss(1, 1);
  for (const int64_t sequences : {2, 3, 7}) {
    for (const int ranks : {1, 2, 3}) {
      EXPECT_NEAR(loss(sequences, ranks), one_by_one, 1e-12) << sequences << " on " << ranks;
    }
  }
}

// Ten windows of random bytes and ten of one letter, of which a validation that begins again counts some
// twice: with three a microbatch it had 3.84 for a mean of 3.38.
TEST(TargetsTest, TwentyHeldOutWindowsHaveTheirMean) {
  const TemporaryFolder folder;
  const std::string held_out = folder.path() + "/held-out";
  std::mt19937 random(20);
  std::string text;
  for (int i = 0; i < 10 * 33; ++i) {
    text.push_back(static_cast<char>(random() % 256));
  }
  std::ofstream(held_out, std::ios::binary) << text << std::string(10 * 33, 'a');
  const auto loss = [&](int64_t sequences, int64_t batches) {
    JobOptions options{.microbatches_per_rank = static_cast<int>(12 / sequences),
                       .steps = 3,
                       .warmup_steps = 0,
                       .fp64 = true,
                       .validate_every_steps = 3};
    options.micro_batch_size = sequences;
    options.sequence_length = 32;
    options.validation_batches = batches;
    plan::JobPlan plan = MakeJob(options);
    plan.train.data.validation = {{.field = "data.validation", .path = held_out}};
    return RunJob(plan).steps.back().scalars().at("validation_loss");
  };
  const double mean = loss(1, 20);
  EXPECT_NEAR(loss(2, 16), mean, 1e-9);
  EXPECT_NEAR(loss(3, 16), mean, 1e-9);
  EXPECT_NEAR(loss(4, 16), mean, 1e-9);
  EXPECT_GT(loss(1, 10), mean + 1e-3) << "the windows are alike, and show nothing";
}

TEST(TargetsTest, ThreeStepsWithoutTargetsEndAJob) {
  const TemporaryFolder folder;
  JobOptions options = WithoutFirstTokens();
  options.ranks = 2;
  options.steps = 6;
  options.stop_on_nonfinite = true;
  options.validate_every_steps = 0;
  options.text = folder.path() + "/blanks";
  std::ofstream(options.text) << std::string(5000, ' ');
  std::vector<int64_t> steps;
  try {
    RunJob(MakeJob(options),
           {.on_report = [&](const v1::StepReport& step) { steps.push_back(step.step()); }});
    FAIL() << "it trained";
  } catch (const trainer::UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no target of the last 3 steps counts"));
  }
  EXPECT_THAT(steps, testing::ElementsAre(1, 2, 3, 4)) << "the fourth was on its way";
}

}  // namespace
}  // namespace tandem::parity
