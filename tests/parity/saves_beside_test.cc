// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/saved_step.h"
#include "platform/clock.h"
#include "tests/device/forwarding_device.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/fakes.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"
#include "tests/platform/forwarding_files.h"

namespace tandem::parity {
namespace {

// Checkpoints that are written while training goes on.

// Whether a file of that step is written, before the step has its name; of_rank: one of arrays.
bool IsOf(const std::string& path, int64_t step, bool of_rank = false) {
  return absl::StrContains(path, absl::StrCat("/step-", step, ".tmp")) &&
         (!of_rank || absl::StrContains(path, "rank-"));
}

// A disk that keeps rank 0's file of one step waiting until it is told.
struct SlowDisk {
  explicit SlowDisk(int64_t step)
      : files([this, step](const std::string& path) {
          if (IsOf(path, step, /*of_rank=*/true)) {
            has_begun = true;
            was_in_time = may_write.WaitForNotificationWithTimeout(absl::Seconds(120));
          }
          return absl::OkStatus();
        }) {}

  std::atomic<bool> has_begun{false};
  absl::Notification may_write;
  std::atomic<bool> was_in_time{false};
  WatchedFiles files;
};

// Tells the disk when that step is reported.
std::function<void(const v1::StepReport&)> Until(int64_t step, SlowDisk& disk) {
  return [step, &disk](const v1::StepReport& report) {
    if (report.step() == step) {
      disk.may_write.Notify();
    }
  };
}

JobOptions SavesEvery(int64_t steps, int ranks, const std::string& folder) {
  JobOptions options = OnRanks(ranks, folder);
  options.checkpoint_every_steps = steps;
  return options;
}

checkpoint::Info InfoOf(const std::string& path) {
  return checkpoint::SavedStep::Open(platform::SystemFiles(), path).value().manifest().info;
}

// The weights have changed when the copy of step 3 is written. For a job of three steps that one is the last,
// which is written while training stands still.
void ExpectStateOfItsStep(JobOptions options) {
  const TemporaryFolder beside;
  const TemporaryFolder still;
  options.decays = false;
  options.checkpoint_directory = beside.path();
  SlowDisk disk(3);
  RunOptions run;
  run.files = &disk.files;
  run.on_report = Until(4, disk);
  EXPECT_EQ(RunJob(MakeJob(options), run).checkpoints, (std::vector<int64_t>{3, 6, 8}));
  EXPECT_TRUE(disk.was_in_time);
  options.checkpoint_directory = still.path();
  options.steps = 3;
  EXPECT_EQ(RunJob(MakeJob(options)).checkpoints, std::vector<int64_t>{3});
  const checkpoint::Info of_beside = InfoOf(beside.path() + "/step-3");
  const checkpoint::Info of_still = InfoOf(still.path() + "/step-3");
  EXPECT_EQ(of_beside.step, of_still.step);
  EXPECT_EQ(of_beside.skipped_steps, of_still.skipped_steps);
  EXPECT_EQ(of_beside.data, of_still.data);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const std::string name = "/step-3/rank-0000" + std::to_string(rank) + ".safetensors";
    const std::string content = Content(beside.path() + name);
    EXPECT_FALSE(content.empty()) << name;
    EXPECT_TRUE(content == Content(still.path() + name)) << name;
  }
}

class SavedStateTest : public testing::TestWithParam<const char*> {};

TEST_P(SavedStateTest, IsThatOfTheStepWhileTrainingContinues) {
  JobOptions options = SavesEvery(3, 4, "");
  options.strategy = GetParam();
  ExpectStateOfItsStep(options);
}

INSTANTIATE_TEST_SUITE_P(Strategies, SavedStateTest, testing::Values("replicate", "zero1", "zero2", "zero3"));

TEST(SavesBesideTest, FrozenUnitsAndOtherTypesAreSavedToo) {
  JobOptions options = SavesEvery(3, 2, "");
  options.frozen = "embedding";
  options.precision = "compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_BF16";
  ExpectStateOfItsStep(options);
}

// A run of its own applies the step, and its state is copied where nothing is in flight.
TEST(SavesBesideTest, AValidatedStepIsSavedBesideTheNext) {
  JobOptions options = SavesEvery(3, 2, "");
  options.validate_every_steps = 3;
  ExpectStateOfItsStep(options);
}

TEST(SavesBesideTest, RoutersAreSavedAsOfTheStep) {
  JobOptions options = SparseJob();
  options.model_type = "deepseek_v3";
  options.bias_update_rate = 0.01;
  options.ranks = 2;
  options.microbatches_per_rank = 2;
  options.steps = 8;
  options.checkpoint_every_steps = 3;
  ExpectStateOfItsStep(options);
}

TEST(SavesBesideTest, ASaveWaitsForTheOneBeforeIt) {
  const TemporaryFolder folder;
  std::atomic<int> num_writes{0};
  WatchedFiles disk([&](const std::string& path) {
    if (IsOf(path, 2)) {
      absl::SleepFor(absl::Milliseconds(300));
    }
    if (IsOf(path, 4)) {
      EXPECT_TRUE(std::filesystem::exists(folder.path() + "/step-2"));
      ++num_writes;
    }
    return absl::OkStatus();
  });
  RunOptions run;
  run.files = &disk;
  const JobRun job = RunJob(MakeJob(SavesEvery(2, 2, folder.path())), run);
  EXPECT_GT(num_writes, 0);
  EXPECT_EQ(job.checkpoints, (std::vector<int64_t>{2, 4, 6, 8}));
  EXPECT_EQ(job.steps.size(), 8u);
}

TEST(SavesBesideTest, AStopComesAfterTheSaveInProgress) {
  const TemporaryFolder folder;
  std::vector<trainer::RequestBox>* boxes = nullptr;
  SlowDisk disk(2);
  RunOptions run;
  run.files = &disk.files;
  run.with_requests = [&](std::vector<trainer::RequestBox>& requests) {
    boxes = &requests;
    requests[0].Add(trainer::kRequestCheckpoint, 7);
  };
  run.on_report = [&](const v1::StepReport& report) {
    if (report.step() == 4) {
      (*boxes)[1].Add(trainer::kRequestStop, 9);
      disk.may_write.Notify();
    }
  };
  JobOptions options = OnRanks(2, folder.path());
  options.steps = 1'000'000;
  const JobRun job = RunJob(MakeJob(options), run);
  EXPECT_TRUE(job.stopped);
  EXPECT_TRUE(disk.was_in_time);
  ASSERT_EQ(job.checkpoints.size(), 2u);
  EXPECT_EQ(job.checkpoints[0], 2);
  EXPECT_EQ(job.checkpoints[1], job.steps.back().step());
  EXPECT_EQ(job.answered, (std::vector<uint64_t>{7, 9}));
  EXPECT_EQ(job.request_error, "");
}

// Another job takes the directory while the file of a step is being written.
TEST(SavesBesideTest, ATakenDirectoryGetsNoUnfinishedSave) {
  const TemporaryFolder folder;
  SlowDisk disk(3);
  RunOptions run;
  run.files = &disk.files;
  run.on_report = [&](const v1::StepReport& report) {
    if (report.step() == 4) {
      while (!disk.has_begun) {
        absl::SleepFor(absl::Milliseconds(1));
      }
      const std::string thief = folder.path() + "/thief";
      std::ofstream(thief) << R"({"job": "thief", "name": "", "attempt": 1, "host": ""})";
      std::filesystem::rename(thief, folder.path() + "/.owner");
      disk.may_write.Notify();
    }
  };
  JobOptions options = SavesEvery(3, 2, folder.path());
  options.steps = 1'000'000;
  EXPECT_THAT([&] { RunJob(MakeJob(options), run); }, testing::ThrowsMessage<checkpoint::DirectoryLost>(
                                                          testing::HasSubstr("belongs to job thief now")));
  EXPECT_TRUE(disk.was_in_time);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/step-3"));
  EXPECT_THAT(Content(folder.path() + "/.owner"), testing::HasSubstr("thief"));
}

// A clock that shows when it is looked at.
class WatchedClock final : public platform::Clock {
 public:
  absl::Time Now() const override {
    const absl::MutexLock lock(&mu_);
    ++looks_;
    return now_;
  }
  void Advance(absl::Duration duration) {
    const absl::MutexLock lock(&mu_);
    now_ += duration;
  }
  bool AwaitLooks(int looks) const {
    const absl::MutexLock lock(&mu_);
    const auto seen = [&] { return looks_ >= looks; };
    return mu_.AwaitWithTimeout(absl::Condition(&seen), absl::Seconds(120));
  }

 private:
  mutable absl::Mutex mu_;
  mutable int looks_ = 0;
  absl::Time now_ = absl::UnixEpoch();
};

TEST(SavesBesideTest, LongWaitsForSavesAreEvents) {
  for (const int seconds : {9, 11}) {
    SCOPED_TRACE(seconds);
    const TemporaryFolder folder;
    WatchedClock clock;
    WatchedFiles disk([&](const std::string& path) {
      if (IsOf(path, 2, /*of_rank=*/true)) {
        // One wait before the first save, in which nothing was in progress, and the next has begun.
        EXPECT_TRUE(clock.AwaitLooks(3));
        clock.Advance(absl::Seconds(seconds));
      }
      return absl::OkStatus();
    });
    RunOptions run;
    run.files = &disk;
    run.clock = &clock;
    const JobRun job = RunJob(MakeJob(SavesEvery(2, 2, folder.path())), run);
    EXPECT_EQ(job.checkpoints, (std::vector<int64_t>{2, 4, 6, 8}));
    ASSERT_EQ(job.warnings.size(), seconds < 10 ? 0u : 1u);
    if (!job.warnings.empty()) {
      EXPECT_EQ(job.warnings[0].step(), 4);
      EXPECT_EQ(job.warnings[0].message(),
                "step 4 waited 11 s for the end of the save of step 2; save less often, or to a faster disk");
    }
  }
}

// Looks at the directory whenever a checkpoint gets its name, or one makes way.
class CommitOrder final : public platform::ForwardingFiles {
 public:
  explicit CommitOrder(std::string folder) : folder_(std::move(folder)) {}

  absl::Status Publish(const std::string& from, const std::string& to) override {
    const int64_t step = StepOf(to);
    if (step > 0) {
      EXPECT_NE(Content(folder_ + "/metrics.jsonl").find(absl::StrCat("\"step\":", step, ",")),
                std::string::npos)
          << "the report of step " << step << " comes after its checkpoint";
      ++committed_;
    }
    return ForwardingFiles::Publish(from, to);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    const int64_t step = StepOf(from);
    if (step > 0) {
      EXPECT_TRUE(std::filesystem::exists(absl::StrCat(folder_, "/step-", step + 2))) << from << " as " << to;
      ++removed_;
    }
    return ForwardingFiles::Rename(from, to);
  }

  int committed() const { return committed_; }
  int removed() const { return removed_; }

 private:
  // 0: it is not the name of a whole one.
  int64_t StepOf(const std::string& path) const {
    int64_t step = 0;
    return absl::StartsWith(path, folder_ + "/step-") &&
                   absl::SimpleAtoi(path.substr(folder_.size() + 6), &step)
               ? step
               : 0;
  }

  const std::string folder_;
  std::atomic<int> committed_{0};
  std::atomic<int> removed_{0};
};

TEST(SavesBesideTest, ReportsPrecedeACommitAndRemovalsFollow) {
  const TemporaryFolder folder;
  CommitOrder order(folder.path());
  RunOptions run;
  run.files = &order;
  plan::JobPlan plan = MakeJob(SavesEvery(2, 2, folder.path()));
  plan.train.checkpoint.keep = 1;
  EXPECT_EQ(RunJob(plan, run).checkpoints, (std::vector<int64_t>{2, 4, 6, 8}));
  EXPECT_EQ(order.committed(), 4);
  EXPECT_EQ(order.removed(), 3);
}

// Of the host it has no more than pages.
class NarrowDevice final : public device::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::unique_ptr<device::Region> ReserveHost(int64_t bytes) override {
    if (bytes > 1 << 16) {
      throw device::OutOfMemory("no room for that");
    }
    return ForwardingDevice::ReserveHost(bytes);
  }
};

TEST(SavesBesideTest, WithoutRoomOnAnyMachineTrainingStandsStill) {
  const TemporaryFolder folder;
  const plan::JobPlan plan = MakeJob(SavesEvery(2, 2, folder.path()));
  ASSERT_LT(plan.stage.saved_at, 1 << 16);
  ASSERT_GT(plan.stage.host_bytes - plan.stage.saved_at, 1 << 16);
  RunOptions run;
  run.make_backend = [](int rank) -> std::unique_ptr<trainer::Backend> {
    return rank == 1 ? std::make_unique<WithDevice<NarrowDevice>>() : trainer::MakeCpuBackend();
  };
  const JobRun job = RunJob(plan, run);
  EXPECT_EQ(job.checkpoints, (std::vector<int64_t>{2, 4, 6, 8}));
  ASSERT_EQ(job.warnings.size(), 1u);
  EXPECT_THAT(job.warnings[0].message(),
              testing::HasSubstr("training stands still while checkpoints are written"));
  EXPECT_THAT(job.warnings[0].message(), testing::HasSubstr("no room for that"));
}

// What of the host it has holds ones.
class DirtyDevice final : public device::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::unique_ptr<device::Region> ReserveHost(int64_t bytes) override {
    std::unique_ptr<device::Region> region = ForwardingDevice::ReserveHost(bytes);
    std::memset(region->begin(), 0xFF, static_cast<size_t>(bytes));
    return region;
  }
};

TEST(SavesBesideTest, InitialContentsOfHostMemoryDoNotMatter) {
  const TemporaryFolder folders[2];
  RunOptions run;
  run.make_backend = [](int) { return std::make_unique<WithDevice<DirtyDevice>>(); };
  JobOptions options = SavesEvery(2, 2, folders[0].path());
  const JobRun clean = RunJob(MakeJob(options));
  options.checkpoint_directory = folders[1].path();
  ExpectSameBits(clean, RunJob(MakeJob(options), run));
  for (const char* const file : {"/step-4/rank-00000.safetensors", "/step-6/rank-00001.safetensors"}) {
    EXPECT_FALSE(Content(folders[0].path() + file).empty());
    EXPECT_TRUE(Content(folders[0].path() + file) == Content(folders[1].path() + file)) << file;
  }
}

// One that fails in between is an event (saving_test.cc).
TEST(SavesBesideTest, TheLastSaveThatFailsIsFatal) {
  const TemporaryFolder folder;
  WatchedFiles disk([](const std::string& path) {
    return IsOf(path, 8) ? absl::DataLossError("write " + path + ": Input/output error") : absl::OkStatus();
  });
  RunOptions run;
  run.files = &disk;
  EXPECT_THAT([&] { RunJob(MakeJob(SavesEvery(2, 2, folder.path())), run); },
              testing::ThrowsMessage<checkpoint::CheckpointError>(testing::HasSubstr("Input/output error")));
}

}  // namespace
}  // namespace tandem::parity
