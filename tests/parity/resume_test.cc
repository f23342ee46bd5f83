// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

TEST(ResumeTest, ContinuesWithTheSameBitsOnAnyRanks) {
  const TemporaryFolder whole_folder;
  const JobRun whole = RunJob(MakeJob(OnRanks(2, whole_folder.path())));
  EXPECT_EQ(whole.checkpoints, std::vector<int64_t>{8});
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    const TemporaryFolder folder;
    // Stops after step 2, asked of the last rank.
    const JobRun first = RunJob(MakeJob(OnRanks(2, folder.path())), Ask(1, trainer::kRequestStop, 5));
    EXPECT_TRUE(first.stopped);
    EXPECT_EQ(first.answered, std::vector<uint64_t>{5});
    EXPECT_EQ(first.checkpoints, std::vector<int64_t>{2});
    JobOptions options = OnRanks(ranks, folder.path());
    options.resume = "newest";
    const JobRun second = RunJob(MakeJob(options));
    EXPECT_EQ(second.resumed_step, 2);
    ExpectSameBits(Tail(whole, 3), second);
    EXPECT_EQ(NumLines(folder.path() + "/metrics.jsonl"), 8);
  }
}

TEST(ResumeTest, FromAnEarlierCheckpointRepeatsTheSteps) {
  const TemporaryFolder folder;
  JobOptions options = OnRanks(2, folder.path());
  options.checkpoint_every_steps = 3;
  options.end_of_document = ' ';  // where documents begin follows from the step, as their tokens do
  const JobRun whole = RunJob(MakeJob(options));
  EXPECT_EQ(whole.checkpoints, (std::vector<int64_t>{3, 6, 8}));
  options.resume = folder.path() + "/step-3";
  const JobRun again = RunJob(MakeJob(options));
  EXPECT_EQ(again.resumed_step, 3);
  ExpectSameBits(Tail(whole, 4), again);
  EXPECT_EQ(NumLines(folder.path() + "/metrics.jsonl"), 8);
}

TEST(ResumeTest, EveryDecayContinuesWithItsRates) {
  for (const char* decay : {"linear", "wsd", "inverse_sqrt"}) {
    SCOPED_TRACE(decay);
    JobOptions options = OnRanks(1, "");
    options.decay = decay;
    options.steps = 6;  // of which wsd has one in which the rate falls
    const JobRun whole = ExpectSameBitsAfter(3, options, {options});
    EXPECT_LT(whole.steps.back().learning_rate(), options.learning_rate);
  }
}

TEST(ResumeTest, EveryStepCanBeResumedOnAnyRanks) {
  JobOptions options = OnRanks(2, "");
  options.steps = 4;
  options.tied = true;
  options.validate_every_steps = 1;
  for (const int64_t step : {1, 2, 3}) {
    SCOPED_TRACE(step);
    ExpectSameBitsAfter(step, options, {SharedAmong(1, options), SharedAmong(4, options)});
  }
}

class ResumeInBf16Test : public testing::TestWithParam<const char*> {};

TEST_P(ResumeInBf16Test, ContinuesWithTheSameBits) {
  JobOptions options = SparseJob();
  options.strategy = GetParam();
  options.replicas = ReplicasOf(options.strategy);
  options.ranks = 2 * options.replicas;
  options.microbatches_per_rank = 2;
  options.precision = "compute: COMPUTE_TYPE_BF16";
  ExpectSameBitsAfter(2, options, {options});
}

INSTANTIATE_TEST_SUITE_P(Strategies, ResumeInBf16Test,
                         testing::Values("replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"),
                         [](const auto& info) { return std::string(info.param); });

// A frozen unit has weights, of the type that it computes in, and no moments.
class FrozenResumeTest : public testing::TestWithParam<std::string> {};

TEST_P(FrozenResumeTest, UnitsCanBeFrozenButNotThawed) {
  const TemporaryFolder folder;
  JobOptions options = OnRanks(2, folder.path());
  options.precision = GetParam();
  options.frozen = "embedding";
  options.checkpoint_every_steps = 3;
  const JobRun whole = RunJob(MakeJob(options));
  options.resume = folder.path() + "/step-3";
  ExpectSameBits(Tail(whole, 4), RunJob(MakeJob(options)));
  options.frozen = "none";
  EXPECT_THAT(
      [&] { RunJob(MakeJob(options)); },
      testing::ThrowsMessage<checkpoint::CheckpointError>(
          "checkpoint " + folder.path() +
          "/step-3: it has no array model.embed_tokens.weight/exp_avg; a unit that was frozen when it "
          "was saved has weights only: freeze it here too (training.frozen), or start from step 1"));
  options.frozen = "embedding,layers.0";
  const JobRun more = RunJob(MakeJob(options));
  EXPECT_EQ(more.resumed_step, 3);
  EXPECT_EQ(more.steps.front().loss(), whole.steps[3].loss());
  EXPECT_NE(more.steps.back().loss(), whole.steps.back().loss());
}

INSTANTIATE_TEST_SUITE_P(Precisions, FrozenResumeTest, testing::Values("", "compute: COMPUTE_TYPE_BF16"),
                         [](const auto& info) { return info.param.empty() ? "fp32" : "bf16"; });

TEST(ResumeTest, AFinishedJobHasNothingLeftToDo) {
  const TemporaryFolder folder;
  JobOptions options = OnRanks(2, folder.path());
  const JobRun whole = RunJob(MakeJob(options));
  options.resume = "newest";
  const JobRun again = RunJob(MakeJob(options));
  EXPECT_TRUE(again.steps.empty());
  EXPECT_TRUE(again.arrays == whole.arrays);
}

// Its size is right, so only the resume has found that it is damaged, and no save reads it again.
TEST(ResumeTest, APassedOverCheckpointReplacesNoGoodOne) {
  const TemporaryFolder folder;
  JobOptions options = OnRanks(2, folder.path());
  options.checkpoint_every_steps = 3;
  RunJob(MakeJob(options));
  const std::string damaged = folder.path() + "/step-8/rank-00001.safetensors";
  std::string content = Content(damaged);
  content.back() ^= 1;
  std::ofstream(damaged, std::ios::binary) << content;
  options.resume = "newest";
  options.steps = 9;
  options.checkpoint_every_steps = 0;  // at the end
  plan::JobPlan plan = MakeJob(options);
  plan.train.checkpoint.keep = 2;
  const JobRun again = RunJob(plan);
  EXPECT_EQ(again.resumed_step, 6);
  EXPECT_EQ(again.checkpoints, std::vector<int64_t>{9});
  for (const char* kept : {"/step-6", "/step-8", "/step-9"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path() + kept)) << kept;
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/step-3"));
}

// The step that the last build which wrote version 2 of manifests has saved, and the same arrays in
// version 3.
TEST(ResumeTest, Version2GivesTheBitsOfVersion3) {
  JobOptions options{
      .steps = 2, .layers = 1, .hidden = 8, .inner = 12, .heads = 1, .kv_heads = 1, .tied = true};
  options.resume = std::string(GOLDEN_DIRECTORY) + "/version_2/step-2";
  const TemporaryFolder saved;
  std::filesystem::create_directory(saved.path() + "/step-2");
  for (const auto& file : std::filesystem::directory_iterator(options.resume)) {
    std::filesystem::copy(file, saved.path() + "/step-2");
  }
  const std::string path = saved.path() + "/step-2/manifest.json";
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(Content(path));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::map<std::string, fsdp::Shape> shapes;
  for (const plan::JobParameter& parameter : plan::Parameters(MakeJob(options))) {
    shapes[parameter.name] = parameter.shape;
  }
  for (checkpoint::ManifestArray& array : manifest->arrays) {
    array.shape = shapes.at(array.name);
  }
  std::ofstream(path) << checkpoint::WriteManifest(*manifest).text;
  EXPECT_NE(Content(path).find("\"version\": 3"), std::string::npos);

  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    options.ranks = ranks;
    options.microbatches_per_rank = 2 / ranks;
    std::vector<JobRun> runs;
    for (const std::string& resume :
         {std::string(GOLDEN_DIRECTORY) + "/version_2/step-2", saved.path() + "/step-2"}) {
      const TemporaryFolder folder;
      options.checkpoint_directory = folder.path();
      options.resume = resume;
      options.steps = 4;
      runs.push_back(RunJob(MakeJob(options)));
      EXPECT_EQ(runs.back().resumed_step, 2);
      EXPECT_EQ(runs.back().checkpoints, std::vector<int64_t>{4});
    }
    ExpectSameBits(runs[0], runs[1]);
    EXPECT_TRUE(runs[0].arrays == runs[1].arrays);
  }
}

}  // namespace
}  // namespace tandem::parity
