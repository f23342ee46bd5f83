// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"
#include "tests/platform/forwarding_files.h"
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

TEST(ValidationTest, AStopSavesTheStepBeingValidated) {
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

// A job that goes on from what the one in `from` had on the disk at a crash just behind its save of that
// step.
JobRun Resumed(const std::string& from, int64_t step) {
  const TemporaryFolder folder;
  const std::string name = "step-" + std::to_string(step);
  std::filesystem::copy(from + "/" + name, folder.path() + "/" + name);
  std::ifstream in(from + "/metrics.jsonl");
  std::ofstream out(folder.path() + "/metrics.jsonl");
  std::string line;
  for (int64_t i = 0; i < step && std::getline(in, line); ++i) {  // from step 0
    out << line << "\n";
  }
  out.close();
  JobOptions options = Validating(folder.path());
  options.resume = "newest";
  JobRun run = RunJob(MakeJob(options));
  EXPECT_EQ(NumLines(folder.path() + "/metrics.jsonl"), options.steps + 1) << "each step has one";
  return run;
}

void ExpectSameReport(const v1::StepReport& actual, const v1::StepReport& expected) {
  EXPECT_EQ(actual.step(), expected.step());
  EXPECT_EQ(actual.loss(), expected.loss());
  EXPECT_EQ(actual.grad_norm(), expected.grad_norm());
  EXPECT_EQ(actual.learning_rate(), expected.learning_rate());
  EXPECT_EQ(actual.tokens(), expected.tokens());
  EXPECT_EQ(ValidationLossOf(actual), ValidationLossOf(expected));
}

TEST(ValidationTest, AResumeReportsTheCrashedValidation) {
  const TemporaryFolder plain_folder;
  const JobRun plain = RunJob(MakeJob(Validating(plain_folder.path())));
  for (const uint32_t request : {trainer::kRequestCheckpoint, trainer::kRequestStop}) {
    const TemporaryFolder folder;
    const AskInAValidation asked([&](trainer::RequestBox& box) { box.Add(request, kId); });
    RunJob(MakeJob(Validating(folder.path())), asked.options());
    const JobRun run = Resumed(folder.path(), 2);
    EXPECT_EQ(run.resumed_step, 2);
    ASSERT_EQ(run.steps.size(), 7u);
    for (size_t i = 0; i < run.steps.size(); ++i) {
      ExpectSameReport(run.steps[i], plain.steps.at(i + 1));
    }
    EXPECT_TRUE(run.arrays == plain.arrays);
  }
}

TEST(ValidationTest, AResumeRepeatsTheLastStepsStoppedValidation) {
  const TemporaryFolder plain_folder;
  JobOptions options = Validating(plain_folder.path());
  options.steps = 2;
  options.decays = false;
  const JobRun plain = RunJob(MakeJob(options));
  const TemporaryFolder folder;
  options.checkpoint_directory = folder.path();
  const AskInAValidation asked([](trainer::RequestBox& box) { box.Add(trainer::kRequestStop, kId); });
  const JobRun stopped = RunJob(MakeJob(options), asked.options());
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.checkpoints, std::vector<int64_t>{2});
  options.resume = "newest";
  const JobRun run = RunJob(MakeJob(options));
  EXPECT_FALSE(run.stopped);
  ASSERT_EQ(run.steps.size(), 1u);
  ExpectSameReport(run.steps[0], plain.steps.at(1));
  EXPECT_NE(ValidationLossOf(run.steps[0]), std::nullopt);
  EXPECT_EQ(Content(folder.path() + "/metrics.jsonl").find("\"step\":2"),
            Content(folder.path() + "/metrics.jsonl").rfind("\"step\":2"));
}

TEST(ValidationTest, AStopBeforeTheFirstStepIsImmediate) {
  const TemporaryFolder folder;
  const JobRun run = RunJob(MakeJob(Validating(folder.path())), Ask(1, trainer::kRequestStop, kId));
  EXPECT_TRUE(run.stopped);
  EXPECT_FALSE(run.start.has_value());
  EXPECT_TRUE(run.steps.empty());
  EXPECT_TRUE(run.checkpoints.empty());
  EXPECT_EQ(run.answered, std::vector<uint64_t>{kId});
}

// Says when a checkpoint has its name.
class CommittedStep final : public platform::ForwardingFiles {
 public:
  explicit CommittedStep(std::string path) : path_(std::move(path)) {}
  absl::Status Publish(const std::string& from, const std::string& to) override {
    const absl::Status status = ForwardingFiles::Publish(from, to);
    if (to == path_) {
      there_.Notify();
    }
    return status;
  }
  bool Wait() const { return there_.WaitForNotificationWithTimeout(absl::Seconds(120)); }

 private:
  const std::string path_;
  absl::Notification there_;
};

TEST(ValidationTest, ACheckpointInTheMiddleChangesNoReport) {
  const TemporaryFolder plain_folder;
  const JobRun plain = RunJob(MakeJob(Validating(plain_folder.path())));
  const TemporaryFolder folder;
  const AskInAValidation asked([](trainer::RequestBox& box) { box.Add(trainer::kRequestCheckpoint, kId); });
  // It was begun in the validation: it knows that the report is still to come, and is there although that
  // report holds up all that follows.
  CommittedStep saved(folder.path() + "/step-2");
  RunOptions options = asked.options();
  options.files = &saved;
  bool is_saved = false;
  options.on_report = [&, ask = options.on_report](const v1::StepReport& report) {
    ask(report);
    if (report.step() == 2) {  // it comes behind the validation
      is_saved = saved.Wait();
    }
  };
  const JobRun run = RunJob(MakeJob(Validating(folder.path())), options);
  EXPECT_TRUE(is_saved);
  EXPECT_THAT(Content(folder.path() + "/step-2/manifest.json"), testing::HasSubstr("\"pending_report\""));
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

TEST(ValidationTest, AProfileAmidItBeginsNextStep) {
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

// Two texts: one with more windows than a validation takes, and one with 5 of them, of which the last
// microbatch of two is half full.
std::vector<std::string> TwoTexts(const TemporaryFolder& folder) {
  std::string large;
  for (int i = 0; large.size() < 17 * 200; ++i) {
    large += "a line, and its number is " + std::to_string(i * i) + "\n";
  }
  std::string small = "what is held out in this text has its own letters: ";
  while (small.size() < 17 * 5 + 3) {
    small += "zyxwvut ";
  }
  folder.Write("large", large);
  folder.Write("small", small.substr(0, 17 * 5 + 3));
  return {folder.path() + "/large", folder.path() + "/small"};
}

double ScalarOf(const v1::StepReport& report, const std::string& name) {
  const auto found = report.scalars().find(name);
  return found == report.scalars().end() ? std::nan("") : found->second;
}

TEST(ValidationTest, EachTextHasTheLossItHasAlone) {
  const TemporaryFolder folder;
  JobOptions options{.steps = 2, .warmup_steps = 0, .validate_every_steps = 1, .validation_batches = 7};
  const std::vector<std::string> texts = TwoTexts(folder);
  const auto run = [&](const std::vector<std::string>& sets, int ranks) {
    options.validation_sets = sets;
    options.ranks = ranks;
    options.microbatches_per_rank = 4 / ranks;
    return RunJob(MakeJob(options));
  };
  const JobRun large = run({texts[0]}, 1);
  const JobRun small = run({texts[1]}, 1);
  for (const int ranks : {1, 2, 4}) {
    const JobRun both = run(texts, ranks);
    ASSERT_EQ(both.steps.size(), 2u);
    for (size_t i = 0; i < both.steps.size(); ++i) {
      const double of_large = ScalarOf(both.steps[i], "validation_loss/large");
      const double of_small = ScalarOf(both.steps[i], "validation_loss/small");
      EXPECT_EQ(of_large, ValidationLossOf(large.steps[i])) << ranks;
      EXPECT_EQ(of_small, ValidationLossOf(small.steps[i])) << ranks;
      EXPECT_EQ(of_small, ScalarOf(small.steps[i], "validation_loss/small"));
      // 14 windows of the one, all 5 of the other.
      EXPECT_NEAR(*ValidationLossOf(both.steps[i]), (14 * of_large + 5 * of_small) / 19, 1e-12) << ranks;
    }
    EXPECT_TRUE(both.arrays == large.arrays) << "a validation changes nothing";
  }
}

TEST(ValidationTest, AResumeRepeatsBothTextsOfAStop) {
  const TemporaryFolder texts_folder;
  const TemporaryFolder plain_folder;
  JobOptions options = Validating(plain_folder.path());
  const std::vector<std::string> texts = TwoTexts(texts_folder);
  options.validation_sets = {texts[1], texts[0]};  // the first is one run
  options.steps = 2;
  options.decays = false;
  const JobRun plain = RunJob(MakeJob(options));
  const TemporaryFolder folder;
  options.checkpoint_directory = folder.path();
  const AskInAValidation asked([](trainer::RequestBox& box) { box.Add(trainer::kRequestStop, kId); });
  const JobRun stopped = RunJob(MakeJob(options), asked.options());
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.checkpoints, std::vector<int64_t>{2});
  ASSERT_EQ(stopped.steps.size(), 2u);
  EXPECT_TRUE(std::isnan(ScalarOf(stopped.steps[1], "validation_loss/large")));
  options.resume = "newest";
  const JobRun run = RunJob(MakeJob(options));
  ASSERT_EQ(run.steps.size(), 1u);
  ExpectSameReport(run.steps[0], plain.steps.at(1));
  for (const char* name : {"validation_loss/large", "validation_loss/small"}) {
    EXPECT_EQ(ScalarOf(run.steps[0], name), ScalarOf(plain.steps.at(1), name)) << name;
  }
}

}  // namespace
}  // namespace tandem::parity
