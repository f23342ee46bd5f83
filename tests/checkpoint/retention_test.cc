// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/checkpoint/watched_files.h"
#include "tests/comm/run_thread_ranks.h"

namespace tandem::checkpoint {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

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

TEST_F(RetentionTest, EarlierCheckpointsCountUnread) {
  for (const int64_t step : {10, 20, 30}) {
    SaveOn(files_, directory_, 2, step);
  }
  WatchedFiles watched;
  WholeSteps whole = WholeStepsOf(directory_, 2, {{0, &watched}, {1, &watched}});
  EXPECT_THAT(whole, ElementsAre(10, 20, 30));
  for (const auto& [path, bytes] : watched.read()) {
    EXPECT_THAT(path, HasSubstr("/manifest.json"));
  }
  EXPECT_THAT(SaveKnowing(whole, 40, /*keep=*/3).removed_steps, ElementsAre(10));
  EXPECT_THAT(whole, ElementsAre(20, 30, 40));
}

TEST_F(RetentionTest, ReasonOfAnIncompleteStepReachesEveryRank) {
  EXPECT_THAT(WholeStepsOf(root_ + "/none", 2), ElementsAre());
  for (const int64_t step : {10, 20, 30, 40, 50, 60}) {
    SaveOn(files_, directory_, 2, step);
  }
  std::filesystem::remove(Path(10) + "/manifest.json");
  std::filesystem::remove(Path(60) + "/rank-00000.safetensors");
  WriteAll(Path(20) + "/rank-00000.safetensors", "short");
  FlipABit(Path(30) + "/manifest.json");
  const int64_t bytes = *files_.Size(Path(40) + "/rank-00000.safetensors");
  UnreadableFiles unreadable("/step-50/rank-00001.safetensors", EIO);
  std::map<int64_t, std::string> reasons;
  EXPECT_THAT(WholeStepsOf(directory_, 2, {{1, &unreadable}}, &reasons), ElementsAre(40));
  EXPECT_THAT(
      reasons,
      ElementsAre(Pair(10, "open " + Path(10) + "/manifest.json: No such file or directory"),
                  Pair(20, absl::StrCat("rank-00000.safetensors: it has 5 bytes, the manifest says ", bytes)),
                  Pair(30, "manifest.json: its digest does not match"),
                  Pair(50, "rank 1: open " + Path(50) + "/rank-00001.safetensors: Input/output error"),
                  Pair(60, "open " + Path(60) + "/rank-00000.safetensors: No such file or directory")));
}

// No file has such a size, and by such sizes no rank would look at any.
TEST_F(RetentionTest, StepWithImpossibleSizesIsNotWhole) {
  SaveOn(files_, directory_, 2, 10);
  Manifest manifest = *ReadFolderManifest(files_, Path(10));
  for (const std::pair<int64_t, int64_t>& sizes :
       {std::pair{int64_t{-10}, int64_t{-10}}, std::pair{INT64_MAX, int64_t{1}}}) {
    manifest.files[0].bytes = sizes.first;
    manifest.files[1].bytes = sizes.second;
    WriteAll(Path(10) + "/manifest.json", WriteManifest(manifest).text);
    EXPECT_THAT(WholeStepsOf(directory_, 2), ElementsAre());
    EXPECT_EQ(Newest(2).path, "");
    EXPECT_THAT(skipped_,
                ElementsAre("step-10: manifest.json: its files cannot have the sizes that it says"));
  }
}

// On many ranks a checkpoint has many files, and there may be many checkpoints: the others would wait for
// rank 0 in one collective until its deadline.
TEST_F(RetentionTest, RanksShareTheFirstLook) {
  for (const int64_t step : {10, 20}) {
    SaveOn(files_, directory_, 4, step);
  }
  for (const int ranks : {1, 2, 4, 6}) {
    std::vector<WatchedFiles> watched(static_cast<size_t>(ranks));
    FilesOfRanks files;
    for (int rank = 0; rank < ranks; ++rank) {
      files[rank] = &watched[static_cast<size_t>(rank)];
    }
    EXPECT_THAT(WholeStepsOf(directory_, ranks, files), ElementsAre(10, 20));
    std::map<std::string, int> looks;
    for (const WatchedFiles& own : watched) {
      int num_files = 0;
      for (const std::string& path : own.opened()) {
        if (path.ends_with(".safetensors")) {
          ++looks[path];
          ++num_files;
        }
      }
      EXPECT_TRUE(num_files > 0 || ranks > 4);
      EXPECT_TRUE(num_files < 8 || ranks == 1);
    }
    EXPECT_EQ(looks.size(), 8u);
    for (const auto& [path, count] : looks) {
      EXPECT_EQ(count, 1) << path << " on " << ranks;
    }
  }
}

// There may be thousands of them: a rank that looks at them for minutes is alive.
TEST_F(RetentionTest, EachExaminedStepIsProgress) {
  for (const int64_t step : {10, 20, 30}) {
    SaveOn(files_, directory_, 2, step);
  }
  WriteAll(Path(20) + "/manifest.json", "damage");
  std::vector<WatchedFiles> watched(2);
  std::vector<int> looks(2);
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    FindWholeSteps(watched[rank], comm, directory_, [&](int64_t, const std::string&) {
      ++looks[rank];
      EXPECT_EQ(watched[rank].read().size(), static_cast<size_t>(looks[rank])) << "a manifest each";
    });
  });
  EXPECT_THAT(looks, ElementsAre(3, 3));
}

TEST_F(RetentionTest, StepSeenDifferentlyIsNotWhole) {
  for (const int64_t step : {10, 20, 30}) {
    SaveOn(files_, directory_, 4, step);
  }
  for (const int error : {ENOENT, ESTALE, EACCES}) {
    UnreadableFiles no_file("/step-20/rank-00002.safetensors", error);
    EXPECT_THAT(WholeStepsOf(directory_, 4, {{2, &no_file}}), ElementsAre(10, 30));
    EXPECT_THAT(WholeStepsOf(directory_, 4, {{1, &no_file}}), ElementsAre(10, 20, 30)) << "it is rank 2's";
    UnreadableFiles no_manifest("/step-30/manifest.json", error);
    for (const int rank : {0, 3}) {
      EXPECT_THAT(WholeStepsOf(directory_, 4, {{rank, &no_manifest}}), ElementsAre(10, 20));
    }
  }
  SaveOn(files_, root_ + "/elsewhere", 3, 10);
  ReplacedFiles other;
  other.read = [&](const std::string& path) {
    return files_.Read(path.ends_with("/step-10/manifest.json") ? root_ + "/elsewhere/step-10/manifest.json"
                                                                : path);
  };
  EXPECT_THAT(WholeStepsOf(directory_, 4, {{1, &other}}), ElementsAre(20, 30));
}

// A warning that names another rank would send the user to that rank's machine.
TEST_F(RetentionTest, ReasonNamesNoRankIfRankZeroFails) {
  SaveOn(files_, directory_, 3, 10);
  UnreadableFiles unreadable("/step-10/manifest.json", EACCES);
  std::map<int64_t, std::string> reasons;
  EXPECT_THAT(WholeStepsOf(directory_, 3, {{0, &unreadable}, {1, &unreadable}, {2, &unreadable}}, &reasons),
              ElementsAre());
  EXPECT_THAT(reasons, ElementsAre(Pair(10, "open " + Path(10) + "/manifest.json: Permission denied")));
}

TEST_F(RetentionTest, UnlistableDirectoryIsEveryRanksError) {
  ReplacedFiles unlisted;
  unlisted.list = [](const std::string& folder) {
    return absl::UnavailableError("list " + folder + ": Input/output error");
  };
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    EXPECT_EQ(ErrorOf([&] {
                FindWholeSteps(FilesOf({{0, &unlisted}}, comm), comm, directory_,
                               [](int64_t, const std::string&) { ADD_FAILURE() << "looked"; });
              }),
              "checkpoint: rank 0: list " + directory_ + ": Input/output error");
  });
}

// The resume has read it and passed it over.
TEST_F(RetentionTest, DamagedStepNeitherCountsNorGoes) {
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
TEST_F(RetentionTest, ForeignStepNeitherCountsNorGoes) {
  WholeSteps whole;
  SaveKnowing(whole, 10, /*keep=*/2);
  std::filesystem::copy(Path(10), Path(15));
  SaveKnowing(whole, 20, /*keep=*/2);
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-15", "step-20"));
  SaveKnowing(whole, 30, /*keep=*/2);
  EXPECT_THAT(Names(), ElementsAre("step-15", "step-20", "step-30"));
}

TEST_F(RetentionTest, ResavedStepIsKnown) {
  WholeSteps whole;
  SaveKnowing(whole, 10, /*keep=*/2);
  SaveKnowing(whole, 20, /*keep=*/2);
  FlipABit(Path(20) + "/rank-00001.safetensors");
  whole.erase(20);
  SaveKnowing(whole, 20, /*keep=*/2);
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20", "step-20.damaged.1"));
  EXPECT_THAT(whole, ElementsAre(10, 20));
}

TEST_F(RetentionTest, FailedSaveChangesNothingKnown) {
  WholeSteps whole;
  SaveKnowing(whole, 10, /*keep=*/1);
  WriteAll(directory_ + "/.owner", R"({"job": "thief", "name": "", "attempt": 1, "host": ""})");
  EXPECT_THROW(SaveKnowing(whole, 20, /*keep=*/1), DirectoryLost);
  EXPECT_THAT(whole, ElementsAre(10));
}

// Reading it takes minutes, in which the owner may have been taken for dead.
TEST_F(RetentionTest, DamagedStepStaysForANewOwner) {
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

TEST_F(RetentionTest, PublishedStepOfAFailedSaveIsKnown) {
  WholeSteps whole;
  SaveKnowing(whole, 10, /*keep=*/1);
  ReplacedFiles files;
  files.sync_folder = [&](const std::string& path) {
    return path == directory_ && std::filesystem::exists(path + "/step-20")
               ? absl::UnknownError("fsync " + path + ": Input/output error")
               : files_.SyncFolder(path);
  };
  EXPECT_THROW(SaveOn(files, directory_, 2, 20, /*keep=*/1, /*attempt=*/1, &whole), CheckpointError);
  SaveKnowing(whole, 30, /*keep=*/1);
  EXPECT_THAT(Names(), ElementsAre("step-30"));
}

}  // namespace
}  // namespace tandem::checkpoint
