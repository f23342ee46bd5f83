// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/remove_together.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/comm/run_thread_ranks.h"

namespace tandem::checkpoint {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::SizeIs;

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

TEST_F(RemovalTest, OneSaveAppliesASmallerKeep) {
  for (int step = 10; step <= 100; step += 10) {
    EXPECT_THAT(SaveOn(files_, directory_, 3, step, /*keep=*/10).removed_steps, ElementsAre());
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
      WholeSteps whole = FindWholeSteps(files_, comm, directory_, [](int64_t, const std::string&) {});
      const Saved saved = SaveShare(FilesOf({{rank, &stuck}}, comm), comm, FolderAt(directory_), /*keep=*/2,
                                    InfoOf(step), whole);
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
    WholeSteps whole = FindWholeSteps(files_, comm, directory_, [](int64_t, const std::string&) {});
    const Saved saved = SaveShare(stuck, comm, FolderAt(directory_), /*keep=*/1, InfoOf(20), whole,
                                  [&](const Saved& committed) {
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
  ReplacedFiles stuck;
  stuck.rename = [](const std::string& from, const std::string& to) {
    return absl::PermissionDeniedError("rename " + from + " to " + to + ": Operation not permitted");
  };
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
  SaveOn(files_, directory_, 4, 10);
  std::filesystem::rename(Path(10), Path(10) + ".damaged.1");
  SaveOn(files_, directory_, 2, 10);
  WriteAll(Path(10) + "/rank-00001.safetensors", "damage");
  ReplacedFiles counted[2];
  int num_files[2] = {};
  for (const int rank : {0, 1}) {
    counted[rank].remove_all = [&, rank](const std::string& path) {
      num_files[rank] += path.find(".damaged.1/rank-") != std::string::npos ? 1 : 0;
      return files_.RemoveAll(path);
    };
  }
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    WholeSteps whole;
    SaveShare(counted[comm.rank()], comm, FolderAt(directory_), /*keep=*/3, InfoOf(10), whole);
  });
  EXPECT_EQ(num_files[0], 2);
  EXPECT_EQ(num_files[1], 2);
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
  EXPECT_EQ(ErrorOf([&] { SaveOn(stuck, directory_, 2, 10); }),
            "checkpoint: rank 0: remove " + Path(10) + ".damaged.1: Device or resource busy");
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-10.damaged.1"));
  EXPECT_EQ(ReadAll(Path(10) + "/rank-00001.safetensors"), "damage");
}

// The other ranks have gone on, and no one would learn of a checkpoint that is there.
TEST_F(RemovalTest, CommittedSaveSurvivesLackOfMemory) {
  ReplacedFiles files;
  files.rename = [](const std::string&, const std::string&) -> absl::Status { throw std::bad_alloc(); };
  SaveOn(files_, directory_, 2, 10);
  const Saved saved = SaveOn(files, directory_, 2, 20, /*keep=*/1);
  EXPECT_EQ(saved.path, Path(20));
  EXPECT_THAT(saved.not_removed, ElementsAre("std::bad_alloc"));
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20"));
}

class RemoveTogetherTest : public CheckpointTest {
 protected:
  // A folder with that many files; returns its path.
  std::string Folder(const std::string& name, int num_files) {
    const std::string path = directory_ + "/" + name;
    std::filesystem::create_directories(path);
    for (int i = 0; i < num_files; ++i) {
      WriteAll(absl::StrFormat("%s/rank-%05d.safetensors", path, i), "content");
    }
    return path;
  }

  // Rank 0's answer.
  std::vector<std::string> Remove(int ranks, const std::vector<std::string>& doomed,
                                  const FilesOfRanks& files = {}) {
    std::vector<std::string> not_removed;
    num_collectives_.assign(static_cast<size_t>(ranks), 0);
    comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
      const std::vector<std::string> answer =
          RemoveTogether(FilesOf(files, comm), comm, comm.rank() == 0 ? doomed : std::vector<std::string>{},
                         [&](const WorkProgress& progress) {
                           const std::lock_guard lock(mu_);
                           progress_[comm.rank()].push_back(
                               absl::StrCat(std::filesystem::path(progress.path).filename().string(), " ",
                                            progress.done, " of ", progress.total));
                         });
      if (comm.rank() == 0) {
        not_removed = answer;
      } else {
        EXPECT_THAT(answer, ElementsAre());
      }
      num_collectives_[static_cast<size_t>(comm.rank())] = comm.num_collectives();
    });
    return not_removed;
  }

  std::vector<uint64_t> num_collectives_;  // by rank, of the last Remove
  std::mutex mu_;
  std::map<int, std::vector<std::string>> progress_;  // by rank, of every Remove
};

TEST_F(RemoveTogetherTest, RanksShareTheRemoval) {
  for (const int ranks : {1, 2, 3, 5}) {
    const std::vector<std::string> doomed = {Folder("step-10.gone", 17), Folder("step-20.gone", 5)};
    Folder("step-30", 3);
    std::vector<ReplacedFiles> logging(static_cast<size_t>(ranks));
    std::vector<std::vector<std::string>> removed(static_cast<size_t>(ranks));  // by rank, in order
    FilesOfRanks files;
    for (int rank = 0; rank < ranks; ++rank) {
      logging[rank].remove_all = [&, rank](const std::string& path) {
        removed[rank].push_back(path);
        return files_.RemoveAll(path);
      };
      files[rank] = &logging[rank];
    }
    EXPECT_THAT(Remove(ranks, doomed, files), ElementsAre());
    EXPECT_THAT(Names(), ElementsAre("step-30"));
    std::map<std::string, int> removals;
    for (int rank = 0; rank < ranks; ++rank) {
      int num_files = 0;
      for (const std::string& path : removed[rank]) {
        ++removals[path];
        num_files += path.ends_with(".safetensors") ? 1 : 0;
      }
      EXPECT_GE(num_files, 22 / ranks - 1) << "rank " << rank << " of " << ranks;
    }
    EXPECT_THAT(removals, SizeIs(17 + 5 + 2));
    for (const auto& [path, count] : removals) {
      EXPECT_EQ(count, 1) << path;
    }
    EXPECT_THAT(removed[0], Contains(doomed[0]));
    EXPECT_THAT(removed[0], Contains(doomed[1]));
  }
}

// Where ranks met only at the end, the communicator's deadline would be one for the whole removal.
TEST_F(RemoveTogetherTest, RanksMeetAfterAFewFiles) {
  for (const int parts : {1, 2, 5}) {
    const std::string folder = Folder("step-10.gone", 2 * parts * kMeetingFiles - 1);
    EXPECT_THAT(Remove(2, {folder}), ElementsAre());
    // Two for rank 0's list; one once all have looked into the folder.
    EXPECT_EQ(num_collectives_[0], static_cast<uint64_t>(2 + 1 + parts));
    EXPECT_EQ(num_collectives_[1], num_collectives_[0]);
  }
  EXPECT_THAT(Remove(2, {}), ElementsAre());
  EXPECT_EQ(num_collectives_[1], 1u) << "there is nothing to do";
}

// It may take minutes.
TEST_F(RemoveTogetherTest, EveryRankLearnsHowFarAllAre) {
  const std::vector<std::string> doomed = {Folder("a", 3 * kMeetingFiles), Folder("b", 1)};
  EXPECT_THAT(Remove(2, doomed), ElementsAre());
  EXPECT_THAT(progress_[0], ElementsAre("a 0 of 48", "a 32 of 48", "a 48 of 48", "b 0 of 1", "b 1 of 1"));
  EXPECT_EQ(progress_[1], progress_[0]);
}

// A rank that removed while another still looks would change what that one counts.
TEST_F(RemoveTogetherTest, NothingIsRemovedBeforeAllHaveLooked) {
  std::vector<std::string> events;
  const auto add = [&](const char* event) {
    const std::lock_guard lock(mu_);
    events.push_back(event);
  };
  ReplacedFiles looks;
  looks.list = [&](const std::string& folder) {
    absl::StatusOr<std::vector<std::string>> names = files_.List(folder);
    add("look");
    return names;
  };
  looks.remove_all = [&](const std::string& path) {
    add("removal");
    return files_.RemoveAll(path);
  };
  EXPECT_THAT(Remove(3, {Folder("step-10.gone", 6)}, {{0, &looks}, {1, &looks}, {2, &looks}}), ElementsAre());
  ASSERT_THAT(events, SizeIs(3 + 6 + 1));
  EXPECT_EQ(std::vector<std::string>(events.begin(), events.begin() + 3),
            std::vector<std::string>(3, "look"));
}

TEST_F(RemoveTogetherTest, RankZeroRemovesWhatOthersCannot) {
  ReplacedFiles blind;
  blind.list = [](const std::string& folder) {
    return absl::UnavailableError("list " + folder + ": Stale file handle");
  };
  ReplacedFiles no_memory;
  no_memory.remove_all = [](const std::string&) -> absl::Status { throw std::bad_alloc(); };
  StuckFiles stuck("/rank-");
  for (platform::Files* const files : std::initializer_list<platform::Files*>{&blind, &no_memory, &stuck}) {
    const std::vector<std::string> doomed = {Folder("step-10.gone", 9), Folder("step-20.gone", 40)};
    EXPECT_THAT(Remove(3, doomed, {{1, files}}), ElementsAre());
    EXPECT_THAT(Names(), ElementsAre());
  }
}

TEST_F(RemoveTogetherTest, UnremovableFolderIsReported) {
  const std::vector<std::string> doomed = {Folder("step-10.gone", 4), Folder("step-20.gone", 4)};
  StuckFiles stuck("/step-10.gone");
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_THAT(Remove(2, doomed, {{0, &stuck}, {1, &stuck}}),
                ElementsAre("remove " + doomed[0] + ": Device or resource busy"));
    EXPECT_THAT(Names(), ElementsAre("step-10.gone"));
  }
  EXPECT_THAT(Remove(2, doomed), ElementsAre());
  EXPECT_THAT(Names(), ElementsAre());
}

// One that is open elsewhere, as NFS sees it; it is rank 1's, of two.
TEST_F(RemoveTogetherTest, UnremovableFileIsReported) {
  const std::string folder = Folder("step-10.gone", 4);
  ReplacedFiles one_stuck;
  one_stuck.remove_all = [&](const std::string& path) {
    return (folder + "/rank-00003.safetensors").starts_with(path)
               ? absl::UnavailableError("remove " + path + ": Device or resource busy")
               : files_.RemoveAll(path);
  };
  EXPECT_THAT(Remove(2, {folder}, {{0, &one_stuck}, {1, &one_stuck}}),
              ElementsAre("remove " + folder + ": Device or resource busy"));
  EXPECT_THAT(*files_.List(folder), ElementsAre("rank-00003.safetensors"));
}

// A user has moved a checkpoint to another disk.
TEST_F(RemoveTogetherTest, RemovesLinksButNotTargets) {
  const std::string elsewhere = Folder("elsewhere", 4);
  std::filesystem::create_symlink(elsewhere, directory_ + "/step-10.gone");
  WriteAll(directory_ + "/step-20.gone", "x");
  EXPECT_THAT(
      Remove(2, {directory_ + "/step-10.gone", directory_ + "/step-20.gone", directory_ + "/step-30"}),
      ElementsAre());
  EXPECT_THAT(Names(), ElementsAre("elsewhere"));
  EXPECT_THAT(*files_.List(elsewhere), SizeIs(4));
}

}  // namespace
}  // namespace tandem::checkpoint
