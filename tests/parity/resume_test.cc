#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "trainer/failure.h"

namespace tandem::parity {
namespace {

using trainer::RequestBox;

constexpr int kMicrobatches = 4;

JobOptions On(int ranks, const std::string& folder) {
  return {.ranks = ranks,
          .microbatches_per_rank = kMicrobatches / ranks,
          .steps = 8,
          .checkpoint_directory = folder};
}

int64_t NumLines(const std::string& path) {
  std::ifstream file(path);
  int64_t lines = 0;
  for (std::string line; std::getline(file, line);) {
    ++lines;
  }
  return lines;
}

// The steps of `whole` from `first` on.
JobRun Tail(JobRun whole, size_t first) {
  whole.steps.erase(whole.steps.begin(), whole.steps.begin() + static_cast<int64_t>(first) - 1);
  return whole;
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

// "step-6" and "step-8" of the other job would otherwise be told, and resumed from, as this one's.
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

}  // namespace
}  // namespace tandem::parity
