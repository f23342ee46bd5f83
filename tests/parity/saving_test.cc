// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "checkpoint/checkpoint.h"
#include "tests/parity/fakes.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"
#include "tests/platform/forwarding_files.h"

namespace tandem::parity {
namespace {

// Checkpoints on request, and those that cannot be saved.

TEST(SavingTest, ARequestedCheckpointIsOneOnAllRanks) {
  const TemporaryFolder folder;
  const JobRun run = RunJob(MakeJob(OnRanks(4, folder.path())), Ask(2, trainer::kRequestCheckpoint, 9));
  EXPECT_FALSE(run.stopped);
  EXPECT_EQ(run.checkpoints, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(run.answered, std::vector<uint64_t>{9});
  EXPECT_EQ(run.steps.size(), 8u);
}

TEST(SavingTest, FailedSavesAreReportedAndRequestsAnswered) {
  const TemporaryFolder folder;
  JobOptions options = OnRanks(2, folder.path());
  options.checkpoint_every_steps = 1;
  WatchedFiles files([](const std::string& path) {  // room from step 4 on
    for (const char* step : {"/step-1.tmp", "/step-2.tmp", "/step-3.tmp"}) {
      if (path.find(step) != std::string::npos) {
        return absl::ResourceExhaustedError("write " + path + ": No space left on device");
      }
    }
    return absl::OkStatus();
  });
  RunOptions run = Ask(1, trainer::kRequestCheckpoint, 9);
  run.files = &files;
  testing::internal::CaptureStderr();
  const JobRun job = RunJob(MakeJob(options), run);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("a checkpoint could not be saved"));
  EXPECT_EQ(job.checkpoints, (std::vector<int64_t>{4, 5, 6, 7, 8}));
  ASSERT_EQ(job.warnings.size(), 3u);
  for (int64_t step = 1; step <= 3; ++step) {
    EXPECT_EQ(job.warnings[step - 1].problem(), v1::CHECKPOINT_PROBLEM_SAVE_FAILED);
    EXPECT_EQ(job.warnings[step - 1].step(), step);
  }
  const std::string path = folder.path() + "/step-1.tmp.1.parity/rank-00000.safetensors";
  EXPECT_EQ(job.warnings[0].message(), "checkpoint: rank 0: write " + path + ": No space left on device");
  EXPECT_EQ(job.answered, std::vector<uint64_t>{9});
  // The run that saves step 1 is on its way when the ranks agree.
  EXPECT_EQ(job.request_error, job.warnings[1].message());
}

// Every save tries to remove it again; a warning for each would push others out of the job's record.
TEST(SavingTest, AnUnremovableCheckpointIsReportedOnce) {
  const TemporaryFolder folder;
  JobOptions options = OnRanks(2, folder.path());
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
  testing::internal::CaptureStderr();
  const JobRun job = RunJob(MakeJob(options), run);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, testing::HasSubstr("older checkpoints could not be removed"));
  EXPECT_THAT(log, testing::Not(testing::HasSubstr("could not be saved")));
  EXPECT_EQ(job.checkpoints, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  ASSERT_EQ(job.warnings.size(), 1u);
  EXPECT_EQ(job.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_NOT_REMOVED);
  EXPECT_EQ(job.warnings[0].message(),
            "remove " + folder.path() + "/step-1.tmp.1.parity.gone: Device or resource busy");
}

TEST(SavingTest, WithoutADirectoryNoSaveIsReportedDone) {
  const JobRun run = RunJob(MakeJob(OnRanks(2, "")), Ask(0, trainer::kRequestCheckpoint, 9));
  EXPECT_EQ(run.answered, std::vector<uint64_t>{9});
  EXPECT_EQ(run.request_error, "the job saves no checkpoints: it has no checkpoint.directory");
}

TEST(SavingTest, LosingItsDirectoryEndsTheJobAtOnce) {
  const TemporaryFolder folder;
  JobOptions options = OnRanks(1, folder.path());
  options.steps = 1'000'000;
  RunOptions run{.job = "first"};
  run.on_report = [&](const v1::StepReport& report) {
    if (report.step() == 3) {  // a thief that takes the owner for dead
      std::ofstream(folder.path() + "/.owner") << R"({"job": "thief", "name": "", "attempt": 1, "host": ""})";
    }
  };
  EXPECT_THAT([&] { RunJob(MakeJob(options), run); },
              testing::ThrowsMessage<checkpoint::DirectoryLost>(
                  testing::StartsWith("checkpoint.directory " + folder.path() +
                                      " belongs to job thief now; job first (parity) on host ")));
}

}  // namespace
}  // namespace tandem::parity
