// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/whole_steps.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/watched_files.h"
#include "tests/platform/forwarding_files.h"

namespace tandem::checkpoint {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Which checkpoints a save leaves, and that it decides by what the job knows.
class RetentionTest : public CheckpointTest {
 protected:
  Saved SaveKnowing(WholeSteps& whole, int64_t step, int keep) {
    return SaveOn(files_, directory_, 2, step, keep, /*attempt=*/1, &whole);
  }

  // As a disk does it, so that its size says nothing.
  void FlipABit(const std::string& file) {
    std::string content = ReadAll(file);
    content[content.size() / 2] ^= 1;
    WriteAll(file, content);
  }
};

// 100 GB of each would be read while all ranks wait.
TEST_F(RetentionTest, ASaveOpensNoFileOfAnotherCheckpoint) {
  WholeSteps whole;
  for (const int64_t step : {10, 20, 30}) {
    SaveKnowing(whole, step, /*keep=*/10);
  }
  WatchedFiles watched;
  const Saved saved = SaveOn(watched, directory_, 2, 40, /*keep=*/2, /*attempt=*/1, &whole);
  EXPECT_THAT(saved.removed_steps, ElementsAre(20, 10));
  for (const int64_t step : {10, 20, 30}) {
    EXPECT_THAT(watched.opened(), Not(Contains(HasSubstr(Path(step) + "/"))));
  }
}

TEST_F(RetentionTest, WhatWasThereWhenTheJobStartedCountsWithoutItsContentBeingRead) {
  for (const int64_t step : {10, 20, 30}) {
    SaveOn(files_, directory_, 2, step);
  }
  WatchedFiles watched;
  WholeSteps whole = *FindWholeSteps(watched, directory_);
  EXPECT_THAT(whole, ElementsAre(10, 20, 30));
  for (const auto& [path, bytes] : watched.read()) {
    EXPECT_THAT(path, HasSubstr("/manifest.json"));
  }
  EXPECT_THAT(SaveKnowing(whole, 40, /*keep=*/3).removed_steps, ElementsAre(10));
  EXPECT_THAT(whole, ElementsAre(20, 30, 40));
}

TEST_F(RetentionTest, OneThatIsNotAsItsManifestSaysIsNotKnownToBeWhole) {
  for (const int64_t step : {10, 20, 30, 40}) {
    SaveOn(files_, directory_, 2, step);
  }
  std::filesystem::remove(Path(10) + "/rank-00001.safetensors");
  WriteAll(Path(20) + "/rank-00000.safetensors", "short");
  FlipABit(Path(30) + "/manifest.json");
  EXPECT_THAT(*FindWholeSteps(files_, directory_), ElementsAre(40));
  EXPECT_THAT(*FindWholeSteps(files_, root_ + "/none"), ElementsAre());
}

// The resume has read it and passed it over.
TEST_F(RetentionTest, OneThatWasFoundDamagedNeitherCountsNorGoes) {
  WholeSteps whole;
  for (const int64_t step : {10, 20, 30}) {
    SaveKnowing(whole, step, /*keep=*/10);
  }
  FlipABit(Path(30) + "/rank-00001.safetensors");
  whole.erase(30);
  EXPECT_THAT(SaveKnowing(whole, 40, /*keep=*/2).removed_steps, ElementsAre(10));
  EXPECT_THAT(Names(), ElementsAre("step-20", "step-30", "step-40"));
}

// Somebody has copied it there. Whether it is whole is not known, so it takes no other's place.
TEST_F(RetentionTest, OneThatCameWhileTheJobRanNeitherCountsNorGoes) {
  WholeSteps whole;
  SaveKnowing(whole, 10, /*keep=*/2);
  std::filesystem::copy(Path(10), Path(15));
  SaveKnowing(whole, 20, /*keep=*/2);
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-15", "step-20"));
  SaveKnowing(whole, 30, /*keep=*/2);
  EXPECT_THAT(Names(), ElementsAre("step-15", "step-20", "step-30"));
}

TEST_F(RetentionTest, OneThatIsSavedAgainInADamagedOnesPlaceIsKnown) {
  WholeSteps whole;
  SaveKnowing(whole, 10, /*keep=*/2);
  SaveKnowing(whole, 20, /*keep=*/2);
  FlipABit(Path(20) + "/rank-00001.safetensors");
  whole.erase(20);
  SaveKnowing(whole, 20, /*keep=*/2);
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20", "step-20.damaged.1"));
  EXPECT_THAT(whole, ElementsAre(10, 20));
}

TEST_F(RetentionTest, AnErrorOfASaveLeavesWhatIsKnownAsItWas) {
  WholeSteps whole;
  SaveKnowing(whole, 10, /*keep=*/1);
  WriteAll(directory_ + "/.owner", R"({"job": "thief", "name": "", "attempt": 1, "host": ""})");
  EXPECT_THROW(SaveKnowing(whole, 20, /*keep=*/1), DirectoryLost);
  EXPECT_THAT(whole, ElementsAre(10));
}

// Reading it takes minutes, in which the owner may have been taken for dead.
TEST_F(RetentionTest, ADamagedOneDoesNotMakeWayOnceAnotherJobHasTheDirectory) {
  WholeSteps whole;
  SaveKnowing(whole, 20, /*keep=*/1);
  FlipABit(Path(20) + "/rank-00001.safetensors");
  WatchedFiles files([&](const std::string& path) {
    if (path.ends_with("/rank-00001.safetensors")) {
      WriteAll(directory_ + "/.owner", R"({"job": "thief", "name": "", "attempt": 1, "host": ""})");
    }
  });
  EXPECT_THROW(SaveOn(files, directory_, 2, 20, /*keep=*/1, /*attempt=*/1, &whole), DirectoryLost);
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-20"));
}

TEST_F(RetentionTest, OneThatIsThereThoughItsSaveFailedIsKnown) {
  WholeSteps whole;
  SaveKnowing(whole, 10, /*keep=*/1);
  class Unsynced final : public platform::ForwardingFiles {
   public:
    explicit Unsynced(std::string directory) : directory_(std::move(directory)) {}
    absl::Status SyncFolder(const std::string& path) override {
      return path == directory_ && std::filesystem::exists(path + "/step-20")
                 ? absl::UnknownError("fsync " + path + ": Input/output error")
                 : ForwardingFiles::SyncFolder(path);
    }

   private:
    const std::string directory_;
  } files(directory_);
  EXPECT_THROW(SaveOn(files, directory_, 2, 20, /*keep=*/1, /*attempt=*/1, &whole), CheckpointError);
  SaveKnowing(whole, 30, /*keep=*/1);
  EXPECT_THAT(Names(), ElementsAre("step-30"));
}

}  // namespace
}  // namespace tandem::checkpoint
