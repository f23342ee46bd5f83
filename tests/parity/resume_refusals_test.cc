// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/job_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/owner.h"
#include "platform/xxh3.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Jobs that must not go on from what is in their directory, or not write there.

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class ResumeRefusalTest : public SavedJobTest {};

// "step-6" and "step-8" of the other job would otherwise be reported, and resumed from, as this one's.
TEST_F(ResumeRefusalTest, AnotherJobsLaterCheckpointsAreRefused) {
  options_.checkpoint_every_steps = 3;
  RunJob(MakeJob(options_), {.job = "first"});
  options_.resume = folder_.path() + "/step-3";
  options_.learning_rate /= 2;
  EXPECT_EQ(RefusalOf(MakeJob(options_), {.job = "second"}).message,
            "checkpoint.directory: " + folder_.path() +
                " holds step 8 of job first, later than step 3 that this job goes on from; use "
                "another directory, or move the later checkpoints away");
  const TemporaryFolder other;
  options_.checkpoint_directory = other.path();
  EXPECT_EQ(RunJob(MakeJob(options_), {.job = "second"}).checkpoints, (std::vector<int64_t>{6, 8}));
}

TEST_F(ResumeRefusalTest, AMissingCheckpointIsEveryRanksUserError) {
  options_.resume = folder_.path() + "/step-3";
  EXPECT_EQ(RefusalOf(MakeJob(options_)).message,
            "checkpoint.resume: checkpoint " + folder_.path() + "/step-3: open " + folder_.path() +
                "/step-3/manifest.json: No such file or directory; name the folder of a whole "
                "checkpoint, or resume: newest");
}

TEST_F(ResumeRefusalTest, ACheckpointPastTheLastStepIsRefused) {
  options_.checkpoint_every_steps = 3;
  RunJob(MakeJob(options_));
  options_.steps = 4;
  for (const std::string& resume : {std::string("newest"), folder_.path() + "/step-8"}) {
    options_.resume = resume;
    plan::JobPlan plan = MakeJob(options_);
    plan.train.checkpoint.keep = 1;
    EXPECT_EQ(RefusalOf(plan).message,
              "training.steps: 4 is not allowed: " + folder_.path() +
                  "/step-8, which the job goes on from, is of step 8; allowed: at least 8; raise "
                  "training.steps, or resume from an earlier checkpoint");
  }
  for (const char* kept : {"/step-3", "/step-6", "/step-8"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_.path() + kept)) << kept;
  }
}

TEST_F(ResumeRefusalTest, WithoutAValidCheckpointNothingIsTrained) {
  options_.checkpoint_every_steps = 3;
  RunJob(MakeJob(options_));
  for (const char* step : {"/step-3", "/step-6", "/step-8"}) {
    Damage(folder_.path() + step);
  }
  const std::string metrics = Content(folder_.path() + "/metrics.jsonl");
  options_.resume = "newest";
  for (int attempt = 0; attempt < 2; ++attempt) {  // which leaves nothing that lets the second through
    const Refusal refusal = RefusalOf(MakeJob(options_));
    EXPECT_EQ(refusal.reason, "NoValidCheckpoint");
    EXPECT_THAT(refusal.message,
                StartsWith("checkpoint.resume: newest: " + folder_.path() +
                           " holds 3 checkpoints, and none verifies: step-8 does not verify ("));
    EXPECT_THAT(refusal.message, EndsWith("set checkpoint: {resume: none} to start from step 1"));
    EXPECT_EQ(Content(folder_.path() + "/metrics.jsonl"), metrics);
  }
  options_.resume = "none";  // which is a decision
  const JobRun again = RunJob(MakeJob(options_));
  EXPECT_EQ(again.resumed_step, 0);
  EXPECT_EQ(again.steps.size(), 8u);
  EXPECT_EQ(again.checkpoints, (std::vector<int64_t>{3, 6, 8}));
}

TEST_F(ResumeRefusalTest, ANewerBuildsCheckpointIsNotPassedOver) {
  options_.checkpoint_every_steps = 3;
  RunJob(MakeJob(options_));
  const std::string manifest = folder_.path() + "/step-8/manifest.json";
  std::string text = Content(manifest);
  text.replace(text.find("\"version\": 3"), 12, "\"version\": 4");
  const size_t behind = text.find("\",") + 2;
  std::ofstream(manifest) << "{\"xxh3_128\": \"" << platform::Xxh3Of(text.substr(behind)) << "\","
                          << text.substr(behind);
  for (const std::string& resume : {std::string("newest"), folder_.path() + "/step-8"}) {
    options_.resume = resume;
    EXPECT_THAT(
        RefusalOf(MakeJob(options_)).message,
        StartsWith("checkpoint.resume: checkpoint " + folder_.path() +
                   "/step-8: manifest.json: it is of version 4, this build reads versions 2 to 3; use the "
                   "build that wrote it or a newer one; "));
  }
  options_.resume = folder_.path() + "/step-6";  // its own step 8 could not be saved
  EXPECT_THAT(RefusalOf(MakeJob(options_)).message, HasSubstr("step-8: manifest.json: it is of version 4"));
}

// Two jobs were submitted when the directory was empty. The second waited for the first, which was short.
TEST_F(ResumeRefusalTest, AnotherJobsUseOfTheDirectoryIsRefused) {
  const TemporaryFolder folder;
  RunJob(MakeJob(OnRanks(2, folder.path())), {.job = "first"});
  const std::string metrics = Content(folder.path() + "/metrics.jsonl");
  EXPECT_EQ(RefusalOf(MakeJob(OnRanks(2, folder.path())), {.job = "second"}).message,
            "checkpoint.directory: another job has used " + folder.path() +
                " since this one was submitted (it holds metrics.jsonl): use checkpoint: "
                "{resume: newest} to go on from there, or another folder");
  EXPECT_EQ(Content(folder.path() + "/metrics.jsonl"), metrics);
  JobOptions options = OnRanks(2, folder.path());
  options.resume = "newest";  // and need not wait
  EXPECT_EQ(RunJob(MakeJob(options), {.job = "third"}).resumed_step, 8);
}

TEST_F(ResumeRefusalTest, StartingOverKeepsAnotherJobsCheckpoints) {
  RunJob(MakeJob(options_), {.job = "first"});
  options_.resume = "none";
  EXPECT_EQ(RefusalOf(MakeJob(options_), {.job = "second"}).message,
            "checkpoint.directory: " + folder_.path() +
                " holds step 8 of job first, later than step 0 that this job goes on from; "
                "use another directory, or move the later checkpoints away");
}

// Two heads of 16 have the tensors of four of 8, and are another function.
TEST_F(ResumeRefusalTest, AnotherModelOfTheSameShapesIsRefused) {
  options_.steps = 2;
  RunJob(MakeJob(options_));
  options_.resume = "newest";
  options_.steps = 3;
  JobOptions other = options_;
  other.heads = 2;
  other.kv_heads = 1;
  ASSERT_EQ(MakeJob(other).parameters_digest, MakeJob(options_).parameters_digest);
  EXPECT_EQ(RefusalOf(MakeJob(other)).message,
            "checkpoint.resume: " + folder_.path() +
                "/step-2 is of another model: model.num_attention_heads is 2, and 4 there; "
                "model.num_key_value_heads is 1, and 2 there; model.head_dim is 16, and 8 there; resume with "
                "the model it was trained with, or start in another folder");
  EXPECT_EQ(RunJob(MakeJob(options_)).checkpoints, std::vector<int64_t>{3});
}

// Of a build that did not write what the model computes.
TEST_F(ResumeRefusalTest, OtherShapesAreListedForUnknownModels) {
  options_.steps = 2;
  RunJob(MakeJob(options_));
  const std::string path = folder_.path() + "/step-2/manifest.json";
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(Content(path));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->info.model = "";
  std::ofstream(path) << checkpoint::WriteManifest(*manifest).text;
  options_.resume = folder_.path() + "/step-2";
  const TemporaryFolder elsewhere;
  options_.checkpoint_directory = elsewhere.path();
  options_.steps = 3;
  JobOptions other = options_;
  other.inner = 56;
  EXPECT_EQ(
      RefusalOf(MakeJob(other)).message,
      "checkpoint.resume: " + folder_.path() +
          "/step-2 is of another model: model.layers.0.mlp.down_proj.weight is [32, 56], and [32, 48] there; "
          "resume with the model it was trained with, or start in another folder");
  other = options_;
  other.layers = 1;
  EXPECT_THAT(RefusalOf(MakeJob(other)).message, HasSubstr("this job has no model.layers.1."));
  other = options_;
  other.layers = 3;
  EXPECT_THAT(RefusalOf(MakeJob(other)).message, HasSubstr("it has no model.layers.2."));
  EXPECT_EQ(RunJob(MakeJob(options_)).resumed_step, 2);
}

TEST_F(ResumeRefusalTest, ExpertsPerTokenMayNotChangeLossesMay) {
  const TemporaryFolder folder;
  JobOptions options = SparseJob();
  options.steps = 2;
  options.checkpoint_directory = folder.path();
  RunJob(MakeJob(options));
  options.resume = "newest";
  options.steps = 3;
  options.router_aux_loss /= 2;
  options.capacity_factor = 1.5;
  EXPECT_EQ(RunJob(MakeJob(options)).checkpoints, std::vector<int64_t>{3});
  options.experts_per_token = 3;
  EXPECT_THAT(RefusalOf(MakeJob(options)).message,
              HasSubstr("is of another model: model.moe.num_experts_per_tok is 3, and 2 there; resume"));
}

TEST_F(ResumeRefusalTest, ALiveJobsDirectoryIsRefused) {
  const TemporaryFolder folder;
  const checkpoint::Owner owner{.job = "first", .name = "headers", .host = "box"};
  ASSERT_TRUE(checkpoint::TakeOwnership(platform::SystemFiles(), folder.path(), owner, [] {}).ok());
  checkpoint::Lease lease(platform::SystemFiles(),
                          checkpoint::FindJobFolder(platform::SystemFiles(), folder.path()).value(), owner,
                          [](const std::string& reason) { ADD_FAILURE() << reason; });
  const Refusal refusal = RefusalOf(MakeJob(OnRanks(2, folder.path())), {.job = "second"});
  EXPECT_EQ(refusal.reason, "CheckpointDirectoryInUse");
  EXPECT_THAT(refusal.message,
              StartsWith("checkpoint.directory " + folder.path() +
                         " is in use by job first (headers) on host box, which is alive; job second "
                         "(parity) on host "));
}

}  // namespace
}  // namespace tandem::parity
