// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "checkpoint/manifest.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// What a job is told that goes on from a checkpoint, but not quite as the job that saved it.

using testing::HasSubstr;

class ResumeWarningTest : public SavedJobTest {};

TEST_F(ResumeWarningTest, APassedOverCheckpointIsReportedWithReason) {
  options_.decays = false;
  options_.checkpoint_every_steps = 3;
  RunJob(MakeJob(options_));
  Damage(folder_.path() + "/step-8");
  options_.resume = "newest";
  const JobRun again = RunJob(MakeJob(options_));
  EXPECT_EQ(again.resumed_step, 6);
  EXPECT_EQ(again.resumed_from, folder_.path() + "/step-6");
  ASSERT_EQ(again.warnings.size(), 1u);
  EXPECT_EQ(again.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_PASSED_OVER);
  EXPECT_EQ(again.warnings[0].step(), 8);
  EXPECT_EQ(again.warnings[0].path(), folder_.path() + "/step-8");
  EXPECT_TRUE(
      again.warnings[0].message().starts_with("step-8 does not verify (rank-00000.safetensors: it has "))
      << again.warnings[0].message();
  EXPECT_TRUE(again.warnings[0].message().ends_with("; the job goes on from step 6"));
}

// The job's record keeps 9 of them; those of another kind must not be crowded out.
TEST_F(ResumeWarningTest, ManyPassedOverLeaveRoomForOtherWarnings) {
  options_.decays = false;
  options_.checkpoint_every_steps = 1;
  plan::JobPlan plan = MakeJob(options_);
  plan.train.checkpoint.keep = 10;
  RunJob(plan);
  for (int step = 2; step <= 8; ++step) {
    Damage(folder_.path() + "/step-" + std::to_string(step));
  }
  options_.resume = "newest";
  options_.seed = 8;
  const TemporaryFolder texts;
  options_.text = WriteOtherText(texts.path());
  const JobRun again = RunJob(MakeJob(options_));
  EXPECT_EQ(again.resumed_step, 1);
  ASSERT_EQ(again.warnings.size(), 8u);
  EXPECT_EQ(again.warnings[4].step(), 4);
  EXPECT_EQ(again.warnings[5].message(), "2 more checkpoints do not verify either");
  EXPECT_EQ(again.warnings[6].problem(), v1::CHECKPOINT_PROBLEM_OTHER_SEED);
  EXPECT_EQ(again.warnings[7].problem(), v1::CHECKPOINT_PROBLEM_OTHER_DATA);
}

TEST_F(ResumeWarningTest, AnotherSeedAndOtherDataAreReported) {
  options_.decays = false;
  options_.steps = 2;
  RunJob(MakeJob(options_));
  options_.resume = "newest";
  options_.steps = 3;
  EXPECT_TRUE(RunJob(MakeJob(options_)).warnings.empty());
  options_.seed = 8;
  const TemporaryFolder texts;
  options_.text = WriteOtherText(texts.path());
  options_.steps = 4;
  const JobRun again = RunJob(MakeJob(options_));
  ASSERT_EQ(again.warnings.size(), 2u);
  EXPECT_EQ(again.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_OTHER_SEED);
  EXPECT_EQ(again.warnings[0].message(),
            "training.seed is 8, and was 7 up to step 3: from there on the text comes in another order");
  EXPECT_EQ(again.warnings[1].problem(), v1::CHECKPOINT_PROBLEM_OTHER_DATA);
  EXPECT_EQ(again.warnings[1].step(), 3);
  EXPECT_TRUE(again.warnings[1].message().starts_with("the text is not what it was up to step 3 (digest "))
      << again.warnings[1].message();

  options_.steps = 5;
  options_.end_of_document = ' ';
  const JobRun packed = RunJob(MakeJob(options_));
  ASSERT_EQ(packed.warnings.size(), 1u);
  EXPECT_EQ(packed.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_OTHER_DATA);
}

TEST_F(ResumeWarningTest, OtherTextOfEqualSizesIsReported) {
  const TemporaryFolder folder;
  const TemporaryFolder texts;
  texts.Write("text", std::string(20'000, 'a'));
  JobOptions options = OnRanks(2, folder.path());
  options.decays = false;
  options.text = texts.path();
  options.steps = 2;
  RunJob(MakeJob(options));
  options.resume = "newest";
  options.steps = 3;
  EXPECT_TRUE(RunJob(MakeJob(options)).warnings.empty());
  texts.Write("text", std::string(20'000, 'b'));
  options.steps = 4;
  const JobRun again = RunJob(MakeJob(options));
  ASSERT_EQ(again.warnings.size(), 1u);
  EXPECT_EQ(again.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_OTHER_DATA);
  EXPECT_EQ(again.warnings[0].message(),
            "the text is not what it was up to step 3: files of data.train or data.validation have the same "
            "names and sizes and other contents, and the losses before and after cannot be compared");

  // One of a build that did not look at contents.
  const std::string path = folder.path() + "/step-4/manifest.json";
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(Content(path));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->info.data_content_digest = "";
  std::ofstream(path) << checkpoint::WriteManifest(*manifest).text;
  texts.Write("text", std::string(20'000, 'c'));
  options.steps = 5;
  const JobRun older = RunJob(MakeJob(options));
  EXPECT_EQ(older.resumed_step, 4);
  EXPECT_TRUE(older.warnings.empty());
}

TEST_F(ResumeWarningTest, AnOldCheckpointWithoutModelAndBatchResumes) {
  options_.decays = false;
  options_.steps = 2;
  RunJob(MakeJob(options_));
  const std::string path = folder_.path() + "/step-2/manifest.json";
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(Content(path));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(manifest->info.model, HasSubstr("\"num_attention_heads\""));
  manifest->info.model = "";
  manifest->info.global_batch_size = 0;
  manifest->info.sequence_length = 0;
  manifest->info.data.clear();
  std::ofstream(path) << checkpoint::WriteManifest(*manifest).text;
  options_.resume = "newest";
  options_.steps = 3;
  const JobRun again = RunJob(MakeJob(options_));
  EXPECT_EQ(again.resumed_step, 2);
  EXPECT_TRUE(again.warnings.empty());
}

TEST_F(ResumeWarningTest, AnotherPlaceInTheTextIsTold) {
  options_.decays = false;
  options_.steps = 2;
  RunJob(MakeJob(options_));
  options_.resume = folder_.path() + "/step-2";
  options_.steps = 3;
  const auto warning = [&](int64_t micro_batch_size, int64_t sequence_length) {
    const TemporaryFolder other;
    JobOptions changed = options_;
    changed.checkpoint_directory = other.path();
    changed.micro_batch_size = micro_batch_size;
    changed.sequence_length = sequence_length;
    const JobRun run = RunJob(MakeJob(changed));
    EXPECT_EQ(run.warnings.size(), 1u);
    return run.warnings.empty() ? v1::CheckpointWarning() : run.warnings[0];
  };
  EXPECT_EQ(warning(1, 16).problem(), v1::CHECKPOINT_PROBLEM_OTHER_DATA);
  EXPECT_EQ(warning(1, 16).message(),
            "the text is read otherwise than up to step 2: training.global_batch_size is 4, and was 8; it "
            "goes on at "
            "sequence 17, and none is read again or skipped");
  EXPECT_EQ(
      warning(3, 16).message(),
      "the text is read otherwise than up to step 2: training.global_batch_size is 12, and was 8; it goes "
      "on at sequence 17, and none is read again or skipped");
  EXPECT_THAT(warning(1, 8).message(),
              testing::ContainsRegex("the text begins epoch 2, and [0-9]+ sequences of epoch 1 of [0-9]+ are "
                                     "skipped; training.global_batch_size is 4, and was 8"));
}

TEST_F(ResumeWarningTest, OtherTrainingIsReportedWithTheRates) {
  options_.learning_rate = 0.5;
  options_.warmup_steps = 0;
  options_.steps = 2;
  RunJob(MakeJob(options_));
  options_.resume = "newest";
  options_.steps = 4;
  options_.clip = 0.5;
  const JobRun longer = RunJob(MakeJob(options_));
  ASSERT_EQ(longer.warnings.size(), 1u);
  EXPECT_EQ(longer.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_OTHER_TRAINING);
  EXPECT_EQ(longer.warnings[0].step(), 2);
  EXPECT_THAT(
      longer.warnings[0].message(),
      testing::MatchesRegex("the job trains otherwise than up to step 2: training.steps is 4, and was 2; "
                            "training.clip_grad_norm is 0.5, and was 1; the learning rate of step 3 is "
                            "0.0732[0-9]*, and that of step 2 was 0"));
}

TEST_F(ResumeWarningTest, AnotherDecayIsReportedWithoutForeignKeys) {
  const TemporaryFolder folder;
  JobOptions options = OnRanks(1, folder.path());
  options.learning_rate = 0.5;
  options.warmup_steps = 1;
  options.decay = "wsd";
  options.steps = 3;
  RunJob(MakeJob(options));
  options.resume = "newest";
  options.decay = "inverse_sqrt";
  options.steps = 4;
  const JobRun other = RunJob(MakeJob(options));
  ASSERT_EQ(other.warnings.size(), 1u);
  EXPECT_EQ(
      other.warnings[0].message(),
      "the job trains otherwise than up to step 3: training.steps is 4, and was 3; "
      "training.schedule.decay is inverse_sqrt, and was wsd; the learning rate of step 4 is 0.25, and that "
      "of step 3 was 0");
}

TEST_F(ResumeWarningTest, LongerJobsOfEndlessDecayHaveNoWarning) {
  for (const char* decay : {"", "inverse_sqrt"}) {
    SCOPED_TRACE(decay);
    const TemporaryFolder folder;
    JobOptions options = OnRanks(1, folder.path());
    options.decays = decay[0] != 0;
    options.decay = decay;
    options.warmup_steps = 1;
    options.steps = 2;
    RunJob(MakeJob(options));
    options.resume = "newest";
    options.steps = 3;
    EXPECT_TRUE(RunJob(MakeJob(options)).warnings.empty());
  }
}

}  // namespace
}  // namespace tandem::parity
