// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"
#include "trainer/requests.h"

namespace tandem::parity {
namespace {

// What is asked of a job in a validation, which is several runs.

constexpr uint64_t kId = 9;

JobOptions Validating(const std::string& folder) {
  JobOptions options = OnRanks(2, folder);
  options.validate_every_steps = 2;
  options.validation_batches = 40;  // 20 rounds of each rank, in five runs
  return options;
}

// Asks rank 1 between the first run and the third of the validation that follows step 2: the report of step 1
// is out before the ranks agree for the first time there.
class AskInAValidation {
 public:
  explicit AskInAValidation(const std::function<void(trainer::RequestBox&)>& ask) : ask_(ask) {
    options_.with_requests = [this](std::vector<trainer::RequestBox>& ranks) { box_ = &ranks[1]; };
    options_.on_report = [this](const v1::StepReport& report) {
      if (report.step() == 1) {
        ask_(*box_);
      }
    };
  }
  AskInAValidation(const AskInAValidation&) = delete;
  AskInAValidation& operator=(const AskInAValidation&) = delete;

  const RunOptions& options() const { return options_; }

 private:
  const std::function<void(trainer::RequestBox&)> ask_;
  trainer::RequestBox* box_ = nullptr;
  RunOptions options_;
};

TEST(ValidationTest, AStopSavesTheStepWhoseValidationItCuts) {
  const TemporaryFolder folder;
  const AskInAValidation asked([](trainer::RequestBox& box) { box.Add(trainer::kRequestStop, kId); });
  const JobRun run = RunJob(MakeJob(Validating(folder.path())), asked.options());
  EXPECT_TRUE(run.stopped);
  EXPECT_EQ(run.checkpoints, std::vector<int64_t>{2});
  EXPECT_EQ(run.answered, std::vector<uint64_t>{kId});
  EXPECT_EQ(run.request_error, "");
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.steps[1].step(), 2);
  EXPECT_GT(run.steps[1].loss(), 0);
  EXPECT_EQ(ValidationLossOf(run.steps[1]), std::nullopt) << "it is not of the whole validation";
  EXPECT_EQ(NumLines(folder.path() + "/metrics.jsonl"), 3) << "steps 0 to 2";
}

TEST(ValidationTest, AStopBeforeTheFirstStepDoesNotWait) {
  const TemporaryFolder folder;
  const JobRun run = RunJob(MakeJob(Validating(folder.path())), Ask(1, trainer::kRequestStop, kId));
  EXPECT_TRUE(run.stopped);
  EXPECT_FALSE(run.start.has_value());
  EXPECT_TRUE(run.steps.empty());
  EXPECT_TRUE(run.checkpoints.empty());
  EXPECT_EQ(run.answered, std::vector<uint64_t>{kId});
}

TEST(ValidationTest, ACheckpointInTheMiddleChangesNoReport) {
  const TemporaryFolder plain_folder;
  const JobRun plain = RunJob(MakeJob(Validating(plain_folder.path())));
  const TemporaryFolder folder;
  const AskInAValidation asked([](trainer::RequestBox& box) { box.Add(trainer::kRequestCheckpoint, kId); });
  RunOptions options = asked.options();
  bool is_saved = false;
  options.on_report = [&, ask = options.on_report](const v1::StepReport& report) {
    ask(report);
    if (report.step() == 2) {  // it comes behind the validation
      is_saved = std::filesystem::exists(folder.path() + "/step-2");
    }
  };
  const JobRun run = RunJob(MakeJob(Validating(folder.path())), options);
  EXPECT_TRUE(is_saved);
  EXPECT_FALSE(run.stopped);
  EXPECT_EQ(run.checkpoints, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(run.answered, std::vector<uint64_t>{kId});
  ASSERT_EQ(run.steps.size(), plain.steps.size());
  for (size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_EQ(run.steps[i].step(), plain.steps[i].step());
    EXPECT_EQ(run.steps[i].loss(), plain.steps[i].loss());
    EXPECT_EQ(ValidationLossOf(run.steps[i]), ValidationLossOf(plain.steps[i]));
  }
  EXPECT_TRUE(run.arrays == plain.arrays);
}

TEST(ValidationTest, AProfileInTheMiddleBeginsWithTheNextStep) {
  const TemporaryFolder folder;
  const AskInAValidation asked([](trainer::RequestBox& box) { box.AddProfile({.id = 99, .steps = 1}); });
  const JobRun run = RunJob(MakeJob(Validating(folder.path())), asked.options());
  ASSERT_EQ(run.profiled.size(), 2u) << "one of each rank";
  for (const ProfiledStep& profiled : run.profiled) {
    EXPECT_EQ(profiled.timeline.step, 3);
  }
  ASSERT_EQ(run.steps.size(), 8u);
  EXPECT_NE(ValidationLossOf(run.steps[1]), std::nullopt);
}

TEST(ValidationTest, ItsLossDoesNotDependOnItsRuns) {
  JobOptions options{.steps = 1, .warmup_steps = 0, .validate_every_steps = 1, .validation_batches = 23};
  const auto loss = [&](int ranks, int microbatches_per_rank) {
    options.ranks = ranks;
    options.microbatches_per_rank = microbatches_per_rank;
    return RunJob(MakeJob(options)).start->scalars().at("validation_loss");
  };
  const double of_one_run = loss(1, 24);
  EXPECT_EQ(loss(1, 1), of_one_run);  // six runs of four microbatches
  EXPECT_EQ(loss(1, 7), of_one_run);  // four of six
  EXPECT_EQ(loss(4, 1), of_one_run);  // two of three on each rank
  EXPECT_EQ(loss(3, 2), of_one_run);  // two of four
}

}  // namespace
}  // namespace tandem::parity
