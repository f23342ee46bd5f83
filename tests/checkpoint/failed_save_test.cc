// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/comm/run_thread_ranks.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Saves that do not get to their end.
using FailedSaveTest = CheckpointTest;

TEST_F(FailedSaveTest, OneRanksFailureIsEveryRanksError) {
  SaveOn(files_, directory_, 3, 10);
  std::vector<std::string> errors(3);
  FaultyFiles broken(FaultyFiles::Fault::kFullDisk, 1);
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    WholeSteps whole;
    errors[static_cast<size_t>(comm.rank())] = ErrorOf([&] {
      SaveShare(FilesOf({{1, &broken}}, comm), comm, FolderAt(directory_), 3, InfoOf(20), whole);
    });
  });
  EXPECT_EQ(errors[0],
            absl::StrCat("checkpoint: rank 1: write ", directory_,
                         "/step-20.tmp.1.0123456789ab/rank-00001.safetensors: No space left on device"));
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], errors[0]);
  EXPECT_THAT(Names(), ElementsAre("step-10"));
}

// A power cut at every operation: what is found afterwards is the old checkpoint or the new one, whole; and
// the next attempt can save.
TEST_F(FailedSaveTest, PowerCutLeavesOldOrNew) {
  bool finished = false;
  bool found_old = false;
  for (int k = 1; !finished; ++k) {
    SCOPED_TRACE(k);
    std::filesystem::remove_all(directory_);
    SaveOn(files_, directory_, 2, 10);
    SaveOn(files_, directory_, 2, 20);
    FaultyFiles files(FaultyFiles::Fault::kPowerCut, k);
    try {
      SaveOn(files, directory_, 2, 30, /*keep=*/2);
      finished = files.operations() < k;
    } catch (const CheckpointError&) {
    }
    const Found found = Newest();
    EXPECT_TRUE(skipped_.empty()) << skipped_[0];
    ASSERT_TRUE(found.info.step == 20 || found.info.step == 30);
    found_old |= found.info.step == 20;
    EXPECT_TRUE(LoadsAs(found.path, 3, found.info.step));
    SaveOn(files_, directory_, 3, 40, /*keep=*/2, /*attempt=*/2);
    EXPECT_EQ(Newest().path, Path(40));
    for (const std::string& name : Names()) {
      EXPECT_FALSE(absl::StrContains(name, ".tmp.")) << name;
    }
    ASSERT_LT(k, 100);
  }
  EXPECT_TRUE(found_old);
}

TEST_F(FailedSaveTest, FullDiskLeavesOnlyTheOldOnes) {
  for (int k = 1; k <= 12; ++k) {
    SCOPED_TRACE(k);
    std::filesystem::remove_all(directory_);
    SaveOn(files_, directory_, 2, 10);
    FaultyFiles files(FaultyFiles::Fault::kFullDisk, k);
    try {
      SaveOn(files, directory_, 2, 20, /*keep=*/1);
      EXPECT_THAT(Names(), ElementsAre("step-20"));
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
      EXPECT_THAT(Names(), ElementsAre("step-10"));
    }
  }
}

TEST_F(FailedSaveTest, AnyErrorReachesAllRanksAndIsRetried) {
  bool finished = false;
  for (int k = 1; !finished; ++k) {
    SCOPED_TRACE(k);
    std::filesystem::remove_all(directory_);
    SaveOn(files_, directory_, 2, 10);
    FaultyFiles files(FaultyFiles::Fault::kOneError, k);
    try {
      const Saved saved = SaveOn(files, directory_, 2, 20, /*keep=*/1);
      finished = files.operations() < k;
      // A file that one rank could not remove is gone at the second try, rank 0's; what stays is reported.
      EXPECT_EQ(saved.not_removed.empty(), Names() == std::vector<std::string>{"step-20"});
      EXPECT_TRUE(saved.not_removed.empty() || !finished);
    } catch (const CheckpointError&) {
    }
    const Found found = Newest();
    EXPECT_TRUE(skipped_.empty());
    EXPECT_TRUE(LoadsAs(found.path, 1, found.info.step));
    if (finished) {
      break;
    }
    SaveOn(files, directory_, 2, 20, /*keep=*/1);
    EXPECT_TRUE(LoadsAs(Path(20), 1, 20));
    ASSERT_LT(k, 100);
  }
}

// Unmounting it lazily, or renaming it, is possible while files in it are open.
TEST_F(FailedSaveTest, VanishedFolderIsNamedAndNotRemade) {
  for (const char* const when : {"/rank-00001.safetensors", "/manifest.json", "/step-20"}) {
    SCOPED_TRACE(when);
    std::filesystem::remove_all(directory_);
    SaveOn(files_, directory_, 2, 10);
    const std::string away = directory_ + ".away";
    RacingFiles files(when, [&] { std::filesystem::rename(directory_, away); });
    EXPECT_THAT(ErrorOf([&] { SaveOn(files, directory_, 2, 20); }),
                HasSubstr(": checkpoint.directory " + directory_ + " is no longer there ("));
    EXPECT_FALSE(std::filesystem::exists(directory_));
    std::filesystem::rename(away, directory_);
    SaveOn(files_, directory_, 2, 30);
    EXPECT_THAT(Names(), ElementsAre("step-10", "step-30"));
  }
}

// The folder, with another device since it was found.
ReplacedFiles MountedAnew() {
  ReplacedFiles files;
  files.id_of_folder = [](const std::string& path) {
    absl::StatusOr<platform::FolderId> id = platform::SystemFiles().IdOfFolder(path);
    if (id.ok()) {
      ++id->device;
    }
    return id;
  };
  return files;
}

TEST_F(FailedSaveTest, AnotherFolderOnOneRankFailsAll) {
  const JobFolder folder = FolderAt(directory_);
  ReplacedFiles elsewhere = MountedAnew();
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    WholeSteps whole;
    EXPECT_THAT(ErrorOf([&] {
                  SaveShare(FilesOf({{1, &elsewhere}}, comm), comm, folder, 3, InfoOf(20), whole);
                }),
                HasSubstr("checkpoint: rank 1: checkpoint.directory " + directory_ +
                          " is another folder than at the start of the attempt ("));
  });
  EXPECT_THAT(Names(), ElementsAre());
}

// NFS gives a file system another device each time that it is mounted, as by an automounter.
TEST_F(FailedSaveTest, RemountedFolderIsSavedTo) {
  ASSERT_TRUE(TakeOwnership(files_, FolderAt(directory_).path, OwnerOf(InfoOf(10)), [] {}).ok());
  ReplacedFiles files = MountedAnew();
  SaveOn(files, directory_, 2, 10);
  EXPECT_TRUE(LoadsAs(Path(10), 1, 10));
  EXPECT_THROW(SaveOn(files, directory_, 2, 20, /*keep=*/10, /*attempt=*/2), CheckpointError);
}

}  // namespace
}  // namespace tandem::checkpoint
