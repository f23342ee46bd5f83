// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/lease.h"
#include "checkpoint/manifest.h"
#include "checkpoint/owner.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "tests/platform/forwarding_files.h"
#include "trainer/failure.h"

namespace tandem::parity {
namespace {

// Another text than that of all other jobs.
std::string WriteOtherText(const std::string& folder) {
  const std::string file = folder + "/other";
  std::ofstream out(file, std::ios::binary);
  for (int line = 0; line < 200; ++line) {
    out << "The quick brown fox " << line << " jumps over the lazy dog.\n";
  }
  return file;
}

using testing::HasSubstr;
using trainer::RequestBox;

constexpr int kMicrobatches = 4;

JobOptions On(int ranks, const std::string& folder) {
  return {.ranks = ranks,
          .microbatches_per_rank = kMicrobatches / ranks,
          .steps = 8,
          .checkpoint_directory = folder};
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int64_t NumLines(const std::string& path) {
  std::ifstream file(path);
  int64_t lines = 0;
  for (std::string line; std::getline(file, line);) {
    ++lines;
  }
  return lines;
}

// Asks one rank before the first step: all agree with its norm, and act after the run behind it, which is
// step 2's.
RunOptions Ask(int rank, uint32_t bits, uint64_t id) {
  return {.with_requests = [=](std::vector<RequestBox>& requests) { requests[rank].Add(bits, id); }};
}

TEST(ResumeTest, ContinuesWithTheSameBitsOnAnyNumberOfRanks) {
  const TemporaryFolder whole_folder;
  const JobRun whole = RunJob(MakeJob(On(2, whole_folder.path())));
  EXPECT_EQ(whole.checkpoints, std::vector<int64_t>{8});
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    const TemporaryFolder folder;
    // Stops after step 2, asked of the last rank.
    const JobRun first = RunJob(MakeJob(On(2, folder.path())), Ask(1, trainer::kRequestStop, 5));
    EXPECT_TRUE(first.stopped);
    EXPECT_EQ(first.answered, std::vector<uint64_t>{5});
    EXPECT_EQ(first.checkpoints, std::vector<int64_t>{2});
    JobOptions options = On(ranks, folder.path());
    options.resume = "newest";
    const JobRun second = RunJob(MakeJob(options));
    EXPECT_EQ(second.resumed_step, 2);
    ExpectSameBits(Tail(whole, 3), second);
    EXPECT_EQ(NumLines(folder.path() + "/metrics.jsonl"), 8);
  }
}

TEST(ResumeTest, FromAnEarlierCheckpointRepeatsTheSteps) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
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

TEST(ResumeTest, EveryStepCanBeGoneOnFromOnAnyNumberOfRanks) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.steps = 4;
  options.tied = true;
  options.checkpoint_every_steps = 1;
  options.validate_every_steps = 1;
  plan::JobPlan plan = MakeJob(options);
  plan.train.checkpoint.keep = 10;
  const JobRun whole = RunJob(plan);
  ASSERT_EQ(whole.checkpoints, (std::vector<int64_t>{1, 2, 3, 4}));
  for (int step = 1; step < 4; ++step) {
    for (const int ranks : {1, 4}) {
      SCOPED_TRACE(testing::Message() << "step " << step << " on " << ranks);
      const TemporaryFolder other;
      JobOptions resumed = options;
      resumed.ranks = ranks;
      resumed.microbatches_per_rank = kMicrobatches / ranks;
      resumed.checkpoint_directory = other.path();
      resumed.resume = folder.path() + "/step-" + std::to_string(step);
      ExpectSameBits(Tail(whole, static_cast<size_t>(step) + 1), RunJob(MakeJob(resumed)));
    }
  }
}

// A frozen unit has weights, of the type that it computes in, and no moments.
class FrozenResumeTest : public testing::TestWithParam<std::string> {};

TEST_P(FrozenResumeTest, FrozenUnitsStayFrozenAndCannotBeThawedAndMoreCanBeFrozen) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.precision = GetParam();
  options.frozen = "embedding";
  options.checkpoint_every_steps = 3;
  const JobRun whole = RunJob(MakeJob(options));
  options.resume = folder.path() + "/step-3";
  ExpectSameBits(Tail(whole, 4), RunJob(MakeJob(options)));
  options.frozen = "none";
  try {
    RunJob(MakeJob(options));
    FAIL() << "it started";
  } catch (const checkpoint::CheckpointError& error) {
    EXPECT_EQ(
        error.what(),
        "checkpoint " + folder.path() +
            "/step-3: it has no array model.embed_tokens.weight/exp_avg; a unit that was frozen when it "
            "was saved has weights only: freeze it here too (training.frozen), or start from step 1");
  }
  options.frozen = "embedding,layers.0";
  const JobRun more = RunJob(MakeJob(options));
  EXPECT_EQ(more.resumed_step, 3);
  EXPECT_EQ(more.steps.front().loss(), whole.steps[3].loss());
  EXPECT_NE(more.steps.back().loss(), whole.steps.back().loss());
}

INSTANTIATE_TEST_SUITE_P(Precisions, FrozenResumeTest, testing::Values("", "compute: COMPUTE_TYPE_BF16"),
                         [](const auto& info) { return info.param.empty() ? "fp32" : "bf16"; });

// "step-6" and "step-8" of the other job would otherwise be reported, and resumed from, as this one's.
// Version 1 has arrays by unit, and where a parameter lies in its unit depends on the types of the job.
TEST(ResumeTest, TheFirstVersionIsRefusedInAnotherPrecisionBeforeAnythingIsRead) {
  const TemporaryFolder folder;
  JobOptions options = On(1, folder.path());
  options.steps = 2;
  options.precision = "compute: COMPUTE_TYPE_BF16";
  ASSERT_EQ(RunJob(MakeJob(options)).checkpoints, std::vector<int64_t>{2});
  const std::string path = folder.path() + "/step-2/manifest.json";
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(TextOf(path));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->version = 1;
  std::ofstream(path) << checkpoint::WriteManifest(*manifest).text;
  const TemporaryFolder other;
  options = On(1, other.path());
  options.resume = folder.path() + "/step-2";
  try {
    RunJob(MakeJob(options));
    ADD_FAILURE() << "it was read";
  } catch (const trainer::UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step-2 is of version 1 and of another precision than this job"));
  }
}

TEST(ResumeTest, ADirectoryWithLaterCheckpointsOfAnotherJobIsRefused) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.checkpoint_every_steps = 3;
  RunJob(MakeJob(options), {.job = "first"});
  options.resume = folder.path() + "/step-3";
  options.learning_rate /= 2;
  try {
    RunJob(MakeJob(options), {.job = "second"});
    FAIL() << "it started";
  } catch (const trainer::UserError& error) {
    EXPECT_EQ(error.what(),
              "checkpoint.directory: " + folder.path() +
                  " holds step 8 of job first, later than step 3 that this job goes on from; use "
                  "another directory, or move the later checkpoints away");
  }
  const TemporaryFolder other;
  options.checkpoint_directory = other.path();
  EXPECT_EQ(RunJob(MakeJob(options), {.job = "second"}).checkpoints, (std::vector<int64_t>{6, 8}));
}

TEST(ResumeTest, ACheckpointThatIsNotThereIsTheUsersErrorOnEveryRank) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.resume = folder.path() + "/step-3";
  try {
    RunJob(MakeJob(options));
    FAIL() << "it started";
  } catch (const trainer::UserError& error) {
    EXPECT_EQ(error.what(),
              "checkpoint.resume: checkpoint " + folder.path() + "/step-3: open " + folder.path() +
                  "/step-3/manifest.json: No such file or directory; name the folder of a whole "
                  "checkpoint, or resume: newest");
  }
}

TEST(ResumeTest, ACheckpointOnRequestIsOneOnAllRanksAndTrainingGoesOn) {
  const TemporaryFolder folder;
  const JobRun run = RunJob(MakeJob(On(4, folder.path())), Ask(2, trainer::kRequestCheckpoint, 9));
  EXPECT_FALSE(run.stopped);
  EXPECT_EQ(run.checkpoints, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(run.answered, std::vector<uint64_t>{9});
  EXPECT_EQ(run.steps.size(), 8u);
}

TEST(ResumeTest, AFinishedJobHasNothingLeftToDo) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  const JobRun whole = RunJob(MakeJob(options));
  options.resume = "newest";
  const JobRun again = RunJob(MakeJob(options));
  EXPECT_TRUE(again.steps.empty());
  EXPECT_TRUE(again.arrays == whole.arrays);
}

TEST(ResumeTest, ACheckpointPastTheLastStepIsRefusedAndNothingIsReplaced) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.checkpoint_every_steps = 3;
  RunJob(MakeJob(options));
  options.steps = 4;
  for (const std::string& resume : {std::string("newest"), folder.path() + "/step-8"}) {
    options.resume = resume;
    plan::JobPlan plan = MakeJob(options);
    plan.train.checkpoint.keep = 1;
    try {
      RunJob(plan);
      FAIL() << "it started";
    } catch (const trainer::UserError& error) {
      EXPECT_EQ(error.what(),
                "training.steps: 4 is not allowed: " + folder.path() +
                    "/step-8, which the job goes on from, is of step 8; allowed: at least 8; raise "
                    "training.steps, or resume from an earlier checkpoint");
    }
  }
  for (const char* kept : {"/step-3", "/step-6", "/step-8"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path() + kept)) << kept;
  }
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Damage(const std::string& checkpoint) {
  std::ofstream(checkpoint + "/rank-00000.safetensors", std::ios::app) << "x";
}

TEST(ResumeTest, ACheckpointThatIsPassedOverIsReportedWithItsReason) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.checkpoint_every_steps = 3;
  RunJob(MakeJob(options));
  Damage(folder.path() + "/step-8");
  options.resume = "newest";
  const JobRun again = RunJob(MakeJob(options));
  EXPECT_EQ(again.resumed_step, 6);
  EXPECT_EQ(again.resumed_from, folder.path() + "/step-6");
  ASSERT_EQ(again.warnings.size(), 1u);
  EXPECT_EQ(again.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_PASSED_OVER);
  EXPECT_EQ(again.warnings[0].step(), 8);
  EXPECT_EQ(again.warnings[0].path(), folder.path() + "/step-8");
  EXPECT_TRUE(
      again.warnings[0].message().starts_with("step-8 does not verify (rank-00000.safetensors: it has "))
      << again.warnings[0].message();
  EXPECT_TRUE(again.warnings[0].message().ends_with("; the job goes on from step 6"));
}

// Its size is right, so only the resume has found that it is damaged, and no save reads it again.
TEST(ResumeTest, AnOlderCheckpointThatWasPassedOverTakesNoGoodOnesPlace) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
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

// The job's record keeps 8 of them; those of another kind must not be crowded out.
TEST(ResumeTest, ManyThatArePassedOverLeaveRoomForAnotherSeedAndOtherData) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.checkpoint_every_steps = 1;
  plan::JobPlan plan = MakeJob(options);
  plan.train.checkpoint.keep = 10;
  RunJob(plan);
  for (int step = 2; step <= 8; ++step) {
    Damage(folder.path() + "/step-" + std::to_string(step));
  }
  options.resume = "newest";
  options.seed = 8;
  const TemporaryFolder texts;
  options.text = WriteOtherText(texts.path());
  const JobRun again = RunJob(MakeJob(options));
  EXPECT_EQ(again.resumed_step, 1);
  ASSERT_EQ(again.warnings.size(), 8u);
  EXPECT_EQ(again.warnings[4].step(), 4);
  EXPECT_EQ(again.warnings[5].message(), "2 more checkpoints do not verify either");
  EXPECT_EQ(again.warnings[6].problem(), v1::CHECKPOINT_PROBLEM_OTHER_SEED);
  EXPECT_EQ(again.warnings[7].problem(), v1::CHECKPOINT_PROBLEM_OTHER_DATA);
}

TEST(ResumeTest, WhereNoCheckpointVerifiesNothingIsTrainedAndNothingIsReplaced) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.checkpoint_every_steps = 3;
  RunJob(MakeJob(options));
  for (const char* step : {"/step-3", "/step-6", "/step-8"}) {
    Damage(folder.path() + step);
  }
  const std::string metrics = Content(folder.path() + "/metrics.jsonl");
  options.resume = "newest";
  for (int attempt = 0; attempt < 2; ++attempt) {  // which leaves nothing that lets the second through
    try {
      RunJob(MakeJob(options));
      FAIL() << "it started";
    } catch (const trainer::UserError& error) {
      EXPECT_EQ(error.reason, "NoValidCheckpoint");
      const std::string text = error.what();
      EXPECT_TRUE(text.starts_with("checkpoint.resume: newest: " + folder.path() +
                                   " holds 3 checkpoints, and none verifies: step-8 does not verify ("))
          << text;
      EXPECT_TRUE(text.ends_with("set checkpoint: {resume: none} to start from step 1")) << text;
    }
    EXPECT_EQ(Content(folder.path() + "/metrics.jsonl"), metrics);
  }
  options.resume = "none";  // which is a decision
  const JobRun again = RunJob(MakeJob(options));
  EXPECT_EQ(again.resumed_step, 0);
  EXPECT_EQ(again.steps.size(), 8u);
  EXPECT_EQ(again.checkpoints, (std::vector<int64_t>{3, 6, 8}));
}

// Two jobs were submitted when the directory was empty. The second waited for the first, which was short.
TEST(ResumeTest, ADirectoryThatAnotherJobHasUsedSinceTheSubmitIsRefusedAndItsMetricsStay) {
  const TemporaryFolder folder;
  RunJob(MakeJob(On(2, folder.path())), {.job = "first"});
  const std::string metrics = Content(folder.path() + "/metrics.jsonl");
  try {
    RunJob(MakeJob(On(2, folder.path())), {.job = "second"});
    FAIL() << "it started";
  } catch (const trainer::UserError& error) {
    EXPECT_EQ(error.what(), "checkpoint.directory: another job has used " + folder.path() +
                                " since this one was submitted (it holds metrics.jsonl): use checkpoint: "
                                "{resume: newest} to go on from there, or another folder");
  }
  EXPECT_EQ(Content(folder.path() + "/metrics.jsonl"), metrics);
  JobOptions options = On(2, folder.path());
  options.resume = "newest";  // and need not wait
  EXPECT_EQ(RunJob(MakeJob(options), {.job = "third"}).resumed_step, 8);
}

TEST(ResumeTest, StartingOverDoesNotReplaceWhatAnotherJobHasSaved) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  RunJob(MakeJob(options), {.job = "first"});
  options.resume = "none";
  try {
    RunJob(MakeJob(options), {.job = "second"});
    FAIL() << "it started";
  } catch (const trainer::UserError& error) {
    EXPECT_EQ(error.what(), "checkpoint.directory: " + folder.path() +
                                " holds step 8 of job first, later than step 0 that this job goes on from; "
                                "use another directory, or move the later checkpoints away");
  }
}

TEST(ResumeTest, AnotherSeedAndOtherDataAreReported) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.steps = 2;
  RunJob(MakeJob(options));
  options.resume = "newest";
  options.steps = 3;
  EXPECT_TRUE(RunJob(MakeJob(options)).warnings.empty());
  options.seed = 8;
  const TemporaryFolder texts;
  options.text = WriteOtherText(texts.path());
  options.steps = 4;
  const JobRun again = RunJob(MakeJob(options));
  ASSERT_EQ(again.warnings.size(), 2u);
  EXPECT_EQ(again.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_OTHER_SEED);
  EXPECT_EQ(again.warnings[0].message(),
            "training.seed is 8, and was 7 up to step 3: from there on the text comes in another order");
  EXPECT_EQ(again.warnings[1].problem(), v1::CHECKPOINT_PROBLEM_OTHER_DATA);
  EXPECT_EQ(again.warnings[1].step(), 3);
  EXPECT_TRUE(again.warnings[1].message().starts_with("the text is not what it was up to step 3 (digest "))
      << again.warnings[1].message();

  options.steps = 5;
  options.end_of_document = ' ';
  const JobRun packed = RunJob(MakeJob(options));
  ASSERT_EQ(packed.warnings.size(), 1u);
  EXPECT_EQ(packed.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_OTHER_DATA);
}

// Two heads of 16 have the tensors of four of 8, and are another function.
TEST(ResumeTest, AnotherModelOfTheSameShapesIsRefused) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.steps = 2;
  RunJob(MakeJob(options));
  options.resume = "newest";
  options.steps = 3;
  JobOptions other = options;
  other.heads = 2;
  other.kv_heads = 1;
  ASSERT_EQ(MakeJob(other).layout_digest, MakeJob(options).layout_digest);
  try {
    RunJob(MakeJob(other));
    FAIL() << "it started";
  } catch (const trainer::UserError& error) {
    EXPECT_EQ(
        error.what(),
        "checkpoint.resume: " + folder.path() +
            "/step-2 is of another model: model.num_attention_heads is 2, and 4 there; "
            "model.num_key_value_heads is 1, and 2 there; model.head_dim is 16, and 8 there; resume with "
            "the model it was trained with, or start in another folder");
  }
  EXPECT_EQ(RunJob(MakeJob(options)).checkpoints, std::vector<int64_t>{3});
}

TEST(ResumeTest, AnotherNumberOfExpertsATokenIsRefusedAndAnotherLossOfTheirRouterIsNot) {
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
  EXPECT_THAT([&] { RunJob(MakeJob(options)); },
              testing::ThrowsMessage<trainer::UserError>(
                  HasSubstr("is of another model: model.moe.num_experts_per_tok is 3, and 2 there; resume")));
}

TEST(ResumeTest, ACheckpointThatDoesNotSayItsModelAndBatchIsGoneOnFrom) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.steps = 2;
  RunJob(MakeJob(options));
  const std::string path = folder.path() + "/step-2/manifest.json";
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(TextOf(path));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(manifest->info.model, HasSubstr("\"num_attention_heads\""));
  manifest->info.model = "";
  manifest->info.global_batch_size = 0;
  manifest->info.sequence_length = 0;
  std::ofstream(path) << checkpoint::WriteManifest(*manifest).text;
  options.resume = "newest";
  options.steps = 3;
  const JobRun again = RunJob(MakeJob(options));
  EXPECT_EQ(again.resumed_step, 2);
  EXPECT_TRUE(again.warnings.empty());
}

TEST(ResumeTest, AnotherPlaceInTheTextIsTold) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.steps = 2;
  RunJob(MakeJob(options));
  options.resume = folder.path() + "/step-2";
  options.steps = 3;
  const auto warning = [&](int64_t micro_batch_size, int64_t sequence_length) {
    const TemporaryFolder other;
    JobOptions changed = options;
    changed.checkpoint_directory = other.path();
    changed.micro_batch_size = micro_batch_size;
    changed.sequence_length = sequence_length;
    const JobRun run = RunJob(MakeJob(changed));
    EXPECT_EQ(run.warnings.size(), 1u);
    return run.warnings.empty() ? v1::CheckpointWarning() : run.warnings[0];
  };
  EXPECT_EQ(warning(1, 16).problem(), v1::CHECKPOINT_PROBLEM_OTHER_DATA);
  EXPECT_EQ(
      warning(1, 16).message(),
      "training.global_batch_size is 4, and was 8 up to step 2, which had come to sequence 16 of the text: "
      "this job goes on at sequence 8, so that those between are read again");
  EXPECT_EQ(warning(3, 16).message(),
            "training.global_batch_size is 12, and was 8 up to step 2, which had come to sequence 16 of the "
            "text: this job goes on at sequence 24, so that those between are skipped");
  EXPECT_THAT(warning(1, 8).message(), HasSubstr("training.sequence_length is 8, and was 16 up to step 2: "));
}

// No room for the files of a rank, up to and with a step.
class FullDisk final : public platform::ForwardingFiles {
 public:
  explicit FullDisk(int64_t last_step) : last_step_(last_step) {}
  absl::Status Write(const std::string& path, std::string_view content) override {
    for (int64_t step = 1; step <= last_step_; ++step) {
      if (path.find("/step-" + std::to_string(step) + ".tmp") != std::string::npos) {
        return absl::ResourceExhaustedError("write " + path + ": No space left on device");
      }
    }
    return ForwardingFiles::Write(path, content);
  }

 private:
  const int64_t last_step_;
};

TEST(ResumeTest, EverySaveThatFailsIsReportedAndARequestedOneIsAnswered) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.checkpoint_every_steps = 1;
  FullDisk files(3);
  RunOptions run = Ask(1, trainer::kRequestCheckpoint, 9);
  run.files = &files;
  const JobRun job = RunJob(MakeJob(options), run);
  EXPECT_EQ(job.checkpoints, (std::vector<int64_t>{4, 5, 6, 7, 8}));
  ASSERT_EQ(job.warnings.size(), 3u);
  for (int64_t step = 1; step <= 3; ++step) {
    EXPECT_EQ(job.warnings[step - 1].problem(), v1::CHECKPOINT_PROBLEM_SAVE_FAILED);
    EXPECT_EQ(job.warnings[step - 1].step(), step);
  }
  const std::string path = folder.path() + "/step-1.tmp.1.parity/rank-00000.safetensors";
  EXPECT_EQ(job.warnings[0].message(), "checkpoint: rank 0: write " + path + ": No space left on device");
  EXPECT_EQ(job.answered, std::vector<uint64_t>{9});
  EXPECT_EQ(job.request_error, job.warnings[0].message());
}

// Every save tries to remove it again; a warning for each would push others out of the job's record.
TEST(ResumeTest, ACheckpointThatCannotBeRemovedIsReportedOnce) {
  const TemporaryFolder folder;
  JobOptions options = On(2, folder.path());
  options.checkpoint_every_steps = 1;
  class StuckStep final : public platform::ForwardingFiles {
   public:
    absl::Status RemoveAll(const std::string& path) override {
      return path.find("/step-1.tmp") == std::string::npos
                 ? ForwardingFiles::RemoveAll(path)
                 : absl::UnavailableError("remove " + path + ": Device or resource busy");
    }
  } files;
  RunOptions run;
  run.files = &files;
  const JobRun job = RunJob(MakeJob(options), run);
  EXPECT_EQ(job.checkpoints, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  ASSERT_EQ(job.warnings.size(), 1u);
  EXPECT_EQ(job.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_NOT_REMOVED);
  EXPECT_EQ(job.warnings[0].message(),
            "remove " + folder.path() + "/step-1.tmp.1.parity.gone: Device or resource busy");
}

TEST(ResumeTest, ASaveThatIsAskedOfAJobWithoutDirectoryIsNotAnsweredAsDone) {
  const JobRun run = RunJob(MakeJob(On(2, "")), Ask(0, trainer::kRequestCheckpoint, 9));
  EXPECT_EQ(run.answered, std::vector<uint64_t>{9});
  EXPECT_EQ(run.request_error, "the job saves no checkpoints: it has no checkpoint.directory");
}

TEST(ResumeTest, TheDirectoryOfALiveJobIsRefusedToAnother) {
  const TemporaryFolder folder;
  const checkpoint::Owner owner{.job = "first", .name = "headers", .host = "box"};
  ASSERT_TRUE(checkpoint::TakeOwnership(platform::SystemFiles(), folder.path(), owner, [] {}).ok());
  checkpoint::Lease lease(platform::SystemFiles(), folder.path(), owner,
                          [](const std::string& reason) { ADD_FAILURE() << reason; });
  try {
    RunJob(MakeJob(On(2, folder.path())), {.job = "second"});
    FAIL() << "it started";
  } catch (const trainer::UserError& error) {
    EXPECT_EQ(error.reason, "CheckpointDirectoryInUse");
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("checkpoint.directory " + folder.path() +
                                 " is in use by job first (headers) on host box, which is alive; job second "
                                 "(parity) on host "))
        << text;
  }
}

TEST(ResumeTest, AJobThatLosesItsDirectoryEndsAtOnceAndNamesBoth) {
  const TemporaryFolder folder;
  JobOptions options = On(1, folder.path());
  options.steps = 1'000'000;
  RunOptions run{.job = "first"};
  run.on_report = [&](const v1::StepReport& report) {
    if (report.step() == 3) {  // a thief that takes the owner for dead
      std::ofstream(folder.path() + "/.owner") << R"({"job": "thief", "name": "", "attempt": 1, "host": ""})";
    }
  };
  try {
    RunJob(MakeJob(options), run);
    FAIL() << "it went on";
  } catch (const checkpoint::DirectoryLost& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("checkpoint.directory " + folder.path() +
                                 " belongs to job thief now; job first (parity) on host "))
        << text;
  }
}

}  // namespace
}  // namespace tandem::parity
