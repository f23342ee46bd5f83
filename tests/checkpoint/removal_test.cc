// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/comm/run_thread_ranks.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;

// What a save removes of earlier ones, and what it does where that fails.
using RemovalTest = CheckpointTest;

TEST_F(RemovalTest, OnlyEarlierLeftoversAreRemoved) {
  for (const char* name :
       {"step-5.tmp.1.0123456789ab", "step-6.tmp.2.0123456789ab", "step-7.tmp.3.0123456789ab",
        "step-7.tmp.3.other", "step-7.tmp.3", "step-x.tmp.1", "notes"}) {
    std::filesystem::create_directories(directory_ + "/" + name);
    WriteAll(directory_ + "/" + name + "/file", "x");
  }
  SaveOn(files_, directory_, 2, 10, /*keep=*/3, /*attempt=*/2);
  EXPECT_THAT(Names(), ElementsAre("notes", "step-10", "step-7.tmp.3.0123456789ab", "step-x.tmp.1"));
}

TEST_F(RemovalTest, TheNewestValidOnesAreKept) {
  for (int step = 1; step <= 5; ++step) {
    SaveOn(files_, directory_, 2, step * 10, /*keep=*/3);
  }
  EXPECT_THAT(Names(), ElementsAre("step-30", "step-40", "step-50"));
  // A damaged one does not count: without it, two older valid ones stay.
  WriteAll(Path(40) + "/rank-00000.safetensors", "damage");
  SaveOn(files_, directory_, 2, 60, /*keep=*/3);
  EXPECT_THAT(Names(), ElementsAre("step-30", "step-40", "step-50", "step-60"));
  SaveOn(files_, directory_, 2, 70, /*keep=*/3);
  EXPECT_THAT(Names(), ElementsAre("step-40", "step-50", "step-60", "step-70"));
  // Ones of later steps, of a line that was given up, are not older.
  SaveOn(files_, directory_, 2, 45, /*keep=*/1);
  EXPECT_THAT(Names(), ElementsAre("step-40", "step-45", "step-50", "step-60", "step-70"));
}

TEST_F(RemovalTest, ASaveSaysWhichOlderOnesAreGone) {
  EXPECT_THAT(SaveOn(files_, directory_, 2, 10, /*keep=*/2).removed_steps, ElementsAre());
  EXPECT_THAT(SaveOn(files_, directory_, 2, 20, /*keep=*/2).removed_steps, ElementsAre());
  EXPECT_THAT(SaveOn(files_, directory_, 2, 30, /*keep=*/2).removed_steps, ElementsAre(10));
  EXPECT_THAT(SaveOn(files_, directory_, 2, 40, /*keep=*/1).removed_steps, ElementsAre(30, 20));
}

TEST_F(RemovalTest, OneSaveAppliesASmallerKeep) {
  for (int step = 10; step <= 100; step += 10) {
    SaveOn(files_, directory_, 3, step, /*keep=*/10);
  }
  const Saved saved = SaveOn(files_, directory_, 3, 110, /*keep=*/1);
  EXPECT_THAT(saved.removed_steps, ElementsAre(100, 90, 80, 70, 60, 50, 40, 30, 20, 10));
  EXPECT_THAT(saved.not_removed, ElementsAre());
  EXPECT_THAT(Names(), ElementsAre("step-110"));
  EXPECT_TRUE(LoadsAs(Path(110), 2, 110));
}

// Its machine may have lost the file system for a moment.
TEST_F(RemovalTest, OneRanksFailedRemovalIsMadeUpFor) {
  SaveOn(files_, directory_, 3, 10);
  SaveOn(files_, directory_, 3, 20);
  for (int rank = 0; rank < 3; ++rank) {
    const int64_t step = 30 + 10 * rank;
    StuckFiles stuck(".gone/");
    comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
      RankState state(comm.rank(), 3);
      state.Set(step);
      WholeSteps whole = FindWholeSteps(files_, comm, directory_, [](int64_t, const std::string&) {});
      const Saved saved = Save(comm.rank() == rank ? static_cast<platform::Files&>(stuck) : files_, comm,
                               FolderAt(directory_),
                               /*keep=*/2, OwnerOf(InfoOf(step)), InfoOf(step), state.shards(), whole);
      EXPECT_THAT(saved.not_removed, ElementsAre());
    });
    EXPECT_THAT(Names(), ElementsAre(absl::StrCat("step-", step - 10), absl::StrCat("step-", step)));
  }
}

// To remove them may take minutes, and a job that ends meanwhile has saved all the same.
TEST_F(RemovalTest, CheckpointIsAnnouncedBeforeRemovals) {
  SaveOn(files_, directory_, 2, 10);
  const std::string gone = Path(10) + ".tmp.1.0123456789ab.gone";
  StuckFiles stuck(gone);
  std::vector<int64_t> announced;
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    RankState state(comm.rank(), 2);
    state.Set(20);
    WholeSteps whole = FindWholeSteps(files_, comm, directory_, [](int64_t, const std::string&) {});
    const Saved saved = Save(stuck, comm, FolderAt(directory_), /*keep=*/1, OwnerOf(InfoOf(20)), InfoOf(20),
                             state.shards(), whole, [&](const Saved& committed) {
                               EXPECT_EQ(comm.rank(), 0);
                               EXPECT_EQ(committed.path, Path(20));
                               EXPECT_GT(committed.seconds, 0);
                               EXPECT_THAT(committed.not_removed, ElementsAre());
                               EXPECT_TRUE(std::filesystem::exists(gone + "/rank-00001.safetensors"));
                               EXPECT_TRUE(LoadsAs(Path(20), 1, 20));
                               announced = committed.removed_steps;
                             });
    EXPECT_EQ(saved.not_removed.size(), comm.rank() == 0 ? 1u : 0u);
  });
  EXPECT_THAT(announced, ElementsAre(10));
}

// Whatever comes of an old checkpoint, the new one is there and counts as saved.
TEST_F(RemovalTest, FailedRemovalDoesNotFailTheSave) {
  class Stuck final : public platform::ForwardingFiles {
   public:
    absl::Status Rename(const std::string& from, const std::string& to) override {
      return absl::PermissionDeniedError("rename " + from + " to " + to + ": Operation not permitted");
    }
  } stuck;
  SaveOn(files_, directory_, 2, 10);
  const Saved saved = SaveOn(stuck, directory_, 2, 20, /*keep=*/1);
  EXPECT_EQ(saved.path, Path(20));
  EXPECT_THAT(saved.not_removed,
              ElementsAre(absl::StrCat("rename ", Path(10), " to ", Path(10),
                                       ".tmp.1.0123456789ab.gone: Operation not permitted")));
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20"));
}

TEST_F(RemovalTest, FailedRemovalIsRetried) {
  SaveOn(files_, directory_, 2, 10);
  StuckFiles stuck("/step-10.");
  const std::string reason =
      absl::StrCat("remove ", Path(10), ".tmp.1.0123456789ab.gone: Device or resource busy");
  for (const int64_t step : {20, 30, 40}) {
    const Saved saved = SaveOn(stuck, directory_, 2, step, /*keep=*/1);
    EXPECT_EQ(saved.path, Path(step));
    EXPECT_THAT(saved.not_removed, ElementsAre(reason)) << "in the same words, to be told once";
    EXPECT_THAT(Names(), ElementsAre("step-10.tmp.1.0123456789ab.gone", absl::StrCat("step-", step)));
  }
  EXPECT_THAT(SaveOn(stuck, directory_, 2, 40, /*keep=*/1).not_removed, ElementsAre(reason))
      << "there already";
  EXPECT_THAT(SaveOn(files_, directory_, 2, 50, /*keep=*/1, /*attempt=*/2).not_removed, ElementsAre());
  EXPECT_THAT(Names(), ElementsAre("step-50"));
}

// Also not where it has the name that this save takes, and where it belongs to another user, who alone may
// rename it.
TEST_F(RemovalTest, UnremovableTemporariesBlockNoSave) {
  for (const bool may_rename : {true, false}) {
    for (const std::string name : {"step-10.tmp.1.0123456789ab", "step-7.tmp.3.other"}) {
      std::filesystem::remove_all(directory_);
      std::filesystem::create_directories(directory_ + "/" + name);
      WriteAll(directory_ + "/" + name + "/file", "x");
      StuckFiles stuck(directory_ + "/" + name, may_rename);
      const std::string left = directory_ + "/" + name + (may_rename ? ".gone" : "");
      const Saved saved = SaveOn(stuck, directory_, 2, 10);
      EXPECT_THAT(saved.not_removed, ElementsAre("remove " + left + ": Device or resource busy"));
      EXPECT_EQ(Newest().path, Path(10));
      EXPECT_TRUE(LoadsAs(Path(10), 3, 10));
      if (may_rename) {
        EXPECT_TRUE(std::filesystem::exists(left + "/file"));
        EXPECT_FALSE(std::filesystem::exists(Path(10) + "/file"));
      }
    }
  }
}

// One that was moved aside by an earlier save of this attempt has as many files as any other.
TEST_F(RemovalTest, OldDamagedStepMakesWay) {
  class Counted final : public platform::ForwardingFiles {
   public:
    absl::Status RemoveAll(const std::string& path) override {
      num_files += path.find(".damaged.1/rank-") != std::string::npos ? 1 : 0;
      return ForwardingFiles::RemoveAll(path);
    }
    int num_files = 0;
  };
  SaveOn(files_, directory_, 4, 10);
  std::filesystem::rename(Path(10), Path(10) + ".damaged.1");
  SaveOn(files_, directory_, 2, 10);
  WriteAll(Path(10) + "/rank-00001.safetensors", "damage");
  std::vector<Counted> counted(2);
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    RankState state(comm.rank(), 2);
    state.Set(10);
    WholeSteps whole;
    Save(counted[static_cast<size_t>(comm.rank())], comm, FolderAt(directory_), /*keep=*/3,
         OwnerOf(InfoOf(10)), InfoOf(10), state.shards(), whole);
  });
  EXPECT_EQ(counted[0].num_files, 2);
  EXPECT_EQ(counted[1].num_files, 2);
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-10.damaged.1"));
  EXPECT_EQ(ReadAll(Path(10) + ".damaged.1/rank-00001.safetensors"), "damage");
  EXPECT_FALSE(std::filesystem::exists(Path(10) + ".damaged.1/rank-00003.safetensors"));
  EXPECT_TRUE(LoadsAs(Path(10), 2, 10));
}

TEST_F(RemovalTest, DamagedStepWithoutAFreeNameStays) {
  SaveOn(files_, directory_, 2, 10);
  std::filesystem::rename(Path(10), Path(10) + ".damaged.1");
  SaveOn(files_, directory_, 2, 10);
  WriteAll(Path(10) + "/rank-00001.safetensors", "damage");
  StuckFiles stuck("/step-10.damaged.1");
  try {
    SaveOn(stuck, directory_, 2, 10);
    ADD_FAILURE() << "saved";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.what(), "checkpoint: rank 0: remove " + Path(10) + ".damaged.1: Device or resource busy");
  }
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-10.damaged.1"));
  EXPECT_EQ(ReadAll(Path(10) + "/rank-00001.safetensors"), "damage");
}

// The other ranks have gone on, and nobody would learn of a checkpoint that is there.
TEST_F(RemovalTest, CommittedSaveSurvivesLackOfMemory) {
  class NoMemory final : public platform::ForwardingFiles {
   public:
    absl::Status Rename(const std::string&, const std::string&) override { throw std::bad_alloc(); }
  } files;
  SaveOn(files_, directory_, 2, 10);
  const Saved saved = SaveOn(files, directory_, 2, 20, /*keep=*/1);
  EXPECT_EQ(saved.path, Path(20));
  EXPECT_THAT(saved.not_removed, ElementsAre("std::bad_alloc"));
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20"));
}

}  // namespace
}  // namespace tandem::checkpoint
