// SPDX-License-Identifier: Apache-2.0
// What `tandem checkpoint` does with folders of steps, here of one file each.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "platform/files.h"
#include "platform/xxh3.h"
#include "tests/checkpoint/watched_files.h"
#include "tests/checkpoint/weights_folder.h"
#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CheckpointsTest : public CommandTest {
 protected:
  CheckpointsTest() { fs::create_directories(Saved("")); }

  std::string Saved(const std::string& name) const { return folder_ + "/saved/" + name; }

  void Write(const std::string& path, const std::string& content) const {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }

  // One step in the folder of that name, of arrays by their names.
  void Save(int64_t step, const std::map<std::string, std::vector<float>>& arrays, const std::string& name) {
    checkpoint::Manifest manifest;
    manifest.info = {.step = step, .attempt = 1, .job = "0123456789ab"};
    std::vector<checkpoint::MadeTensor> tensors;
    for (const auto& [array, values] : arrays) {
      const auto size = static_cast<int64_t>(values.size());
      manifest.arrays.push_back({.name = array,
                                 .dtype = "F32",
                                 .shape = {size},
                                 .pieces = {{.file = 0, .begin = 0, .elements = size}}});
      tensors.push_back({array, "F32", {size}, checkpoint::FloatBytes(values)});
    }
    const std::string content = checkpoint::WeightsFileOf(tensors);
    manifest.files = {{.name = "rank-0.safetensors",
                       .bytes = static_cast<int64_t>(content.size()),
                       .digest = platform::Xxh3Of(content)}};
    Write(Saved(name) + "/rank-0.safetensors", content);
    Write(Saved(name) + "/manifest.json", checkpoint::WriteManifest(manifest).text);
  }

  void SaveNewer(const std::string& name) {
    const std::string body = R"( "format": "tandem-checkpoint", "version": 99})";
    Write(Saved(name) + "/manifest.json",
          absl::StrCat("{\"xxh3_128\": \"", platform::Xxh3Of(body), "\",", body));
  }
};

TEST_F(CheckpointsTest, EveryStepIsListedWithWhatIsWrong) {
  Save(2, {{"w", {1, 2}}}, "step-2");
  Save(4, {{"w", {1, 3}}}, "step-4");
  Save(6, {{"w", {1, 4}}}, "step-6.tmp.1.0123456789ab");  // being written
  fs::resize_file(Saved("step-4/rank-0.safetensors"), 10);
  SaveNewer("step-8");
  Write(Saved("step-10/rank-0.safetensors"), "");
  ASSERT_EQ(Tandem({"checkpoint", "list", Saved("")}), kOk);
  EXPECT_THAT(console_.out, testing::ContainsRegex("\n +10 .*damaged: .*manifest.json"));
  EXPECT_THAT(console_.out, testing::ContainsRegex("\n +8 .*newer than this build"));
  EXPECT_THAT(console_.out, testing::ContainsRegex("\n +4 .*damaged: rank-0.safetensors"));
  EXPECT_THAT(console_.out, testing::ContainsRegex("\n +2 +0123456789ab +1 .*1 complete"));
  EXPECT_THAT(console_.out, testing::Not(HasSubstr("step-6")));
  EXPECT_EQ(Tandem({"checkpoint", "verify", Saved("")}), kFailed);
  EXPECT_THAT(console_.out, HasSubstr("step-8: newer than this build: manifest.json: it is of version 99"));
  EXPECT_THAT(console_.out, HasSubstr("step-2: whole\n"));
}

TEST_F(CheckpointsTest, AStepSaysWhatItIs) {
  Save(2, {{"w", {1, 2}}, {"v", {3}}}, "copy");
  for (const char* const name : {"copy", "copy/", "copy/."}) {
    ASSERT_EQ(Tandem({"checkpoint", "show", Saved(name)}), kOk) << console_.err;
    EXPECT_THAT(console_.out, HasSubstr("step               2\n"));
    EXPECT_THAT(console_.out, HasSubstr("parameters         3\n"));
    ASSERT_EQ(Tandem({"checkpoint", "list", Saved(name)}), kOk);
    EXPECT_THAT(console_.out, HasSubstr("copy"));
  }
  SaveNewer("step-8");
  EXPECT_EQ(Tandem({"checkpoint", "show", Saved("")}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("use the build that wrote it or a newer one"));
}

TEST_F(CheckpointsTest, WhatIsNotThereIsNamed) {
  EXPECT_EQ(Tandem({"checkpoint", "list", Saved("")}), kNotFound);
  EXPECT_THAT(console_.err, HasSubstr("there is no checkpoint in"));
  EXPECT_EQ(Tandem({"checkpoint", "list", Saved("absent")}), kNotFound);
  EXPECT_THAT(console_.err, HasSubstr("there is no such folder"));
  Save(2, {{"w", {1}}}, "step-2");
  EXPECT_EQ(Tandem({"checkpoint", "show", Saved(""), "--step", "3"}), kNotFound);
  EXPECT_THAT(console_.err, HasSubstr("the newest is step 2"));
  EXPECT_EQ(Tandem({"checkpoint", "show", Saved("step-2"), "--step", "2"}), kUsage);
  EXPECT_EQ(Tandem({"checkpoint", "delete", Saved("")}), kUsage);
}

TEST_F(CheckpointsTest, DifferencesAreByArray) {
  const float inf = std::numeric_limits<float>::infinity();
  Save(2, {{"same", {inf, NAN}}, {"w", {3, 4, inf}}, {"gone", {1}}, {"shape", {1}}}, "step-2");
  Save(4, {{"same", {inf, NAN}}, {"w", {3, 9, inf}}, {"new", {1}}, {"shape", {1, 2}}}, "step-4");
  EXPECT_EQ(Tandem({"checkpoint", "diff", Saved("step-2"), Saved("step-4")}), kFailed);
  EXPECT_THAT(console_.out, testing::Not(HasSubstr("same")));
  EXPECT_THAT(console_.out, testing::ContainsRegex("\nw +5.*e\\+00 .*differ"));
  EXPECT_THAT(console_.out, testing::ContainsRegex("\ngone .*only in the first"));
  EXPECT_THAT(console_.out, testing::ContainsRegex("\nnew .*only in the second"));
  EXPECT_THAT(console_.out, HasSubstr("F32 [1] and F32 [2]"));
  EXPECT_EQ(Tandem({"checkpoint", "diff", Saved("step-2"), Saved("step-2")}), kOk);
  EXPECT_EQ(console_.out, "every array has the same bits\n");
}

TEST_F(CheckpointsTest, LastWholeStepNeedsAllToDelete) {
  Save(2, {{"w", {1}}}, "step-2");
  Save(4, {{"w", {1}}}, "step-4");
  fs::resize_file(Saved("step-4/rank-0.safetensors"), 10);
  EXPECT_EQ(Tandem({"checkpoint", "delete", Saved(""), "--step", "2"}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("the last one that verifies"));
  EXPECT_EQ(Tandem({"checkpoint", "delete", Saved("step-4")}), kOk) << console_.err;
  EXPECT_EQ(Tandem({"checkpoint", "delete", Saved(""), "--step", "2", "--all"}), kOk) << console_.err;
  EXPECT_TRUE(fs::is_empty(Saved(""))) << "nor an owner is left";
}

TEST_F(CheckpointsTest, StepsOfARunningJobAreNotDeleted) {
  Save(2, {{"w", {1}}}, "step-2");
  Save(4, {{"w", {1}}}, "step-4");
  const std::string owner = Saved(".owner");
  Write(owner, R"({"job": "0123456789ab", "name": "runs", "attempt": 1, "host": "here"})");
  const absl::Status deleted = checkpoint::DeleteStep(
      platform::SystemFiles(), Saved(""), 2, {.job = "me", .name = "", .host = ""}, /*even_last=*/true,
      [&] { fs::last_write_time(owner, fs::last_write_time(owner) + std::chrono::milliseconds(1)); });
  EXPECT_TRUE(absl::IsFailedPrecondition(deleted)) << deleted;
  EXPECT_THAT(std::string(deleted.message()),
              HasSubstr("job 0123456789ab (runs) on host here, which is alive"));
  EXPECT_TRUE(fs::exists(Saved("step-2/manifest.json")));
}

TEST_F(CheckpointsTest, JobsNameTheirDirectories) {
  Save(2, {{"w", {1}}}, "step-2");
  Save(4, {{"w", {1}}}, "step-4");
  server_->jobs = {SampleJob(v1::JOB_STATE_SUCCEEDED, 1)};
  server_->jobs[0].mutable_resolved()->mutable_checkpoint()->set_directory(Saved(""));
  ASSERT_EQ(Tandem({"checkpoint", "list", "headers"}), kOk) << console_.err;
  EXPECT_THAT(console_.out, testing::ContainsRegex("\n +2 +0123456789ab +1 .*1 complete"));
  ASSERT_EQ(Tandem({"checkpoint", "show", "headers"}), kOk) << console_.err;
  EXPECT_THAT(console_.out, HasSubstr("step               4\n"));
  ASSERT_EQ(Tandem({"checkpoint", "delete", "headers", "--step", "2"}), kOk) << console_.err;
  EXPECT_EQ(console_.out, "deleted step-2\n");
  EXPECT_FALSE(fs::exists(Saved("step-2")));
  server_->jobs[0].mutable_resolved()->mutable_checkpoint()->clear_directory();
  EXPECT_EQ(Tandem({"checkpoint", "list", "headers"}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("it saves no checkpoints"));
}

TEST_F(CheckpointsTest, DirectoryIsOwnedDuringASlowRead) {
  Save(2, {{"w", {1}}}, "step-2");
  Save(4, {{"w", {1}}}, "step-4");
  const std::string owner = Saved(".owner");
  int num_renewals = 0;
  checkpoint::WatchedFiles files([&](const std::string& path) {
    if (!path.ends_with(".safetensors") || num_renewals == 2) {
      return;
    }
    const auto before = fs::last_write_time(owner);
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    while (fs::last_write_time(owner) == before && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_LT(absl::Now(), deadline) << "a job may take the directory";
    ++num_renewals;
  });
  EXPECT_TRUE(
      checkpoint::DeleteStep(files, Saved(""), 2, {.job = "me", .name = "", .host = ""}, false, [] {}).ok());
  EXPECT_EQ(num_renewals, 2);
  EXPECT_FALSE(fs::exists(Saved("step-2")));
  EXPECT_FALSE(fs::exists(owner));
}

// The directory that a link leads to is the one that has an owner.
TEST_F(CheckpointsTest, ALinkIsDeletedWhereItLeads) {
  Save(2, {{"w", {1}}}, "step-2");
  Save(4, {{"w", {1}}}, "step-4");
  fs::create_directory_symlink(Saved("step-4"), folder_ + "/latest");
  EXPECT_EQ(Tandem({"checkpoint", "show", folder_ + "/latest"}), kOk);
  EXPECT_EQ(Tandem({"checkpoint", "delete", folder_ + "/latest"}), kOk) << console_.err;
  EXPECT_FALSE(fs::exists(Saved("step-4")));
  EXPECT_TRUE(fs::is_symlink(folder_ + "/latest"));
}

TEST_F(CheckpointsTest, WhatIsBeingWrittenIsNotDeleted) {
  Save(2, {{"w", {1}}}, "step-2");
  Save(4, {{"w", {1}}}, "step-4.tmp.1.0123456789ab");
  EXPECT_EQ(Tandem({"checkpoint", "delete", Saved("step-4.tmp.1.0123456789ab")}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("is no step of a checkpoint directory (step-N); nothing is deleted"));
  EXPECT_TRUE(fs::exists(Saved("step-4.tmp.1.0123456789ab")));
}

}  // namespace
}  // namespace tandem::cli
