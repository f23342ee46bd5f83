// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "jobspec/jobspec.h"
#include "nlohmann/json.hpp"
#include "plan/job_plan.h"
#include "platform/files.h"
#include "schedules/simulate/device_profile.h"
#include "tests/cli/command_fixture.h"
#include "tests/platform/irregular_files.h"

namespace tandem::cli {
namespace {

using testing::HasSubstr;

class ProfileTest : public CommandTest {
 protected:
  ProfileTest() {
    v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 4);
    *job.mutable_resolved() = jobspec::Resolve(jobspec::ReadFile(GoodJobFile()).spec);
    job.mutable_attempts(0)->set_device(v1::DEVICE_CPU);
    server_->jobs = {job};
    instructions_ = static_cast<int>(plan::MakeJobPlan(job.resolved()).stage.train.instructions.size());
    for (const bool serialized : {false, true}) {
      for (const int rank : {0, 1}) {
        Add(rank, serialized ? 12 : 11, serialized, instructions_);
      }
    }
  }

  // One instruction after the other, a millisecond each.
  void Add(int rank, int64_t step, bool serialized, int instructions) {
    v1::ProfileChunk& chunk = server_->profile.emplace_back();
    chunk.set_rank(rank);
    v1::StepTimeline& timeline = *chunk.mutable_timeline();
    timeline.set_program("train");
    timeline.set_rank(rank);
    timeline.set_step(step);
    timeline.set_serialized(serialized);
    timeline.set_start_unix_ns(1'700'000'000'000'000'000 + step * 1'000'000'000 + rank);
    timeline.set_processors(6);
    for (int i = 0; i < instructions; ++i) {
      timeline.add_start_ns(i * 1'000'000);
      timeline.add_end_ns((i + 1) * 1'000'000);
      timeline.add_cpu_ns(900'000);
    }
  }

  static std::string Content(const std::string& path) { return platform::SystemFiles().Read(path).value(); }

  int instructions_ = 0;
  const std::string trace_ = folder_ + "/trace.json";
  const std::string profile_ = folder_ + "/profile.json";
};

TEST_F(ProfileTest, WritesTraceAndProfileWithASummary) {
  ASSERT_EQ(Tandem({"profile", "headers", "--steps", "1", "--trace", trace_, "--profile", profile_}), kOk)
      << console_.err;
  EXPECT_EQ(console_.out.rfind("recorded step 11 on 2 ranks: the longest took ", 0), 0u) << console_.out;
  EXPECT_EQ(server_->profile_requests.at(0).steps(), 1);
  EXPECT_TRUE(server_->profile_requests.at(0).serialized());
  EXPECT_EQ(server_->profile_requests.at(0).job(), "3f2a91c07be4");

  double last = 0;
  const nlohmann::json trace = nlohmann::json::parse(Content(trace_));
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") {
      last = std::max(last, event.at("ts").get<double>());
    }
  }
  EXPECT_GT(last, 1e6);  // µs: the second step began a second after the first

  const auto profile = schedules::ProfileFromJson(Content(profile_));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->cores, 6);  // a worker has one of the two ranks
  ASSERT_FALSE(profile->measured.empty());
  EXPECT_DOUBLE_EQ(profile->measured[0].seconds, 1e-3);
}

TEST_F(ProfileTest, TraceAloneNeedsNoSerializedSteps) {
  ASSERT_EQ(Tandem({"profile", "headers", "--trace", trace_}), kOk) << console_.err;
  EXPECT_FALSE(server_->profile_requests.at(0).serialized());
  EXPECT_EQ(server_->profile_requests.at(0).steps(), 2);
}

TEST_F(ProfileTest, LostRankWritesNothing) {
  v1::ProfileChunk& chunk = server_->profile.emplace_back();
  chunk.set_rank(1);
  chunk.set_error("worker local-2 went away; rank 1 runs there");
  EXPECT_EQ(Tandem({"profile", "headers", "--trace", trace_}), kFailed);
  EXPECT_EQ(console_.out, "");
  EXPECT_EQ(console_.err,
            "tandem: profile headers: rank 1: worker local-2 went away; rank 1 runs there; nothing was "
            "written\n");
  EXPECT_FALSE(std::filesystem::exists(trace_));
}

TEST_F(ProfileTest, ALinkToANewFileStays) {
  const std::string target = folder_ + "/target.json";
  std::filesystem::create_symlink(target, trace_);
  v1::ProfileChunk& chunk = server_->profile.emplace_back();
  chunk.set_error("worker local-1 went away");
  EXPECT_EQ(Tandem({"profile", "headers", "--trace", trace_}), kFailed);
  EXPECT_FALSE(std::filesystem::exists(target));
  server_->profile.pop_back();
  EXPECT_EQ(Tandem({"profile", "headers", "--trace", trace_}), kOk) << console_.err;
  EXPECT_TRUE(std::filesystem::is_symlink(trace_));
  EXPECT_TRUE(std::filesystem::is_regular_file(target));
}

TEST_F(ProfileTest, TimelinesOfAnotherProgramAreRefused) {
  Add(0, 13, false, instructions_ + 1);
  EXPECT_EQ(Tandem({"profile", "headers", "--trace", trace_}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("use the build that the job runs with"));
  EXPECT_FALSE(std::filesystem::exists(trace_));
}

TEST_F(ProfileTest, AProfileOfAnotherDeviceNeedsItsRates) {
  server_->jobs[0].mutable_attempts(0)->set_device(v1::DEVICE_CUDA);
  EXPECT_EQ(Tandem({"profile", "headers", "--profile", profile_}), kUsage);
  EXPECT_THAT(
      console_.err,
      HasSubstr(
          "--profile needs --base for a job on GPUs: the preset of its device; allowed: cpu, h100, h200"));
  EXPECT_EQ(Tandem({"profile", "headers", "--profile", profile_, "--base", "abacus"}), kUsage);
  EXPECT_EQ(Tandem({"profile", "headers", "--profile", profile_, "--base", "h100"}), kOk) << console_.err;
  EXPECT_EQ(schedules::ProfileFromJson(Content(profile_))->name, "h100-measured");
}

TEST_F(ProfileTest, AFileThatCannotBeWrittenIsNamed) {
  EXPECT_EQ(Tandem({"profile", "headers", "--trace", folder_ + "/nowhere/trace.json"}), kFailed);
  EXPECT_EQ(console_.err, "tandem: profile headers: cannot open " + folder_ +
                              "/nowhere/trace.json: No such file or directory; name another file\n");
  EXPECT_EQ(Tandem({"profile", "headers", "--profile", folder_}), kFailed);
  EXPECT_THAT(console_.err, testing::HasSubstr("cannot open " + folder_ + ": it is a folder"));
  platform::PutIrregularFile("a FIFO", folder_ + "/fifo");
  EXPECT_EQ(Tandem({"profile", "headers", "--trace", folder_ + "/fifo"}), kFailed);
  EXPECT_THAT(console_.err, testing::HasSubstr("cannot open " + folder_ + "/fifo: it is a FIFO"));
  EXPECT_TRUE(server_->profile_requests.empty()) << "nothing is recorded for a file that cannot be written";
}

}  // namespace
}  // namespace tandem::cli
