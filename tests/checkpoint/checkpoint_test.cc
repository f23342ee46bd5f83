// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/digest.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/platform/irregular_files.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(CheckpointTest, AnyNumberOfRanksLoadsWhatAnyNumberSaved) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const Saved saved = SaveOn(files_, directory_, ranks, /*step=*/ranks * 10);
    EXPECT_EQ(saved.path, Path(ranks * 10));
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(saved.path)) {
      bytes += static_cast<int64_t>(entry.file_size());
    }
    EXPECT_EQ(saved.bytes, bytes);
    EXPECT_EQ(saved.manifest_digest.size(), 32u);
    for (int loading = 1; loading <= 4; ++loading) {
      EXPECT_TRUE(LoadsAs(saved.path, loading, ranks * 10));
    }
    const Info info = Inspect(files_, saved.path).info;
    EXPECT_EQ(info.step, ranks * 10);
    EXPECT_EQ(info.attempt, 1);
    EXPECT_EQ(info.job, "0123456789ab");
    EXPECT_EQ(info.spec_digest, "spec");
    EXPECT_EQ(info.layout_digest, "layout");
  }
  EXPECT_EQ(Newest().path, Path(40));
  EXPECT_EQ(Newest().info.step, 40);
}

TEST_F(CheckpointTest, NoDirectoryAndAnEmptyOneHaveNoNewest) {
  EXPECT_EQ(Newest().path, "");
  std::filesystem::create_directories(directory_ + "/something");
  EXPECT_EQ(Newest().path, "");
  EXPECT_TRUE(skipped_.empty());
}

TEST_F(CheckpointTest, EveryDamagedFileIsRefusedByNameAndTheOneBeforeIsFound) {
  SaveOn(files_, directory_, 3, 10);
  SaveOn(files_, directory_, 3, 20);
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (const std::string name :
       {"rank-00000.safetensors", "rank-00001.safetensors", "rank-00002.safetensors", "manifest.json"}) {
    const std::string file = Path(20) + "/" + name;
    const std::string content = ReadAll(file);
    const auto expect_refused = [&](const std::string& how) {
      SCOPED_TRACE(name + " " + how + " seed " + std::to_string(seed));
      EXPECT_EQ(Newest().path, Path(10));
      EXPECT_EQ(skipped_.size(), 1u);
      if (!skipped_.empty()) {
        EXPECT_THAT(skipped_[0], HasSubstr("step-20: "));
        EXPECT_THAT(skipped_[0], HasSubstr(name));
      }
      try {
        LoadsAs(Path(20), 1, 20);
        ADD_FAILURE() << "loaded";
      } catch (const CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr(name));
      }
    };
    for (int repeat = 0; repeat < 10; ++repeat) {
      WriteAll(file, content.substr(0, random() % content.size()));
      expect_refused("truncated");
    }
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::string flipped = content;
      flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
      WriteAll(file, flipped);
      expect_refused("flipped");
    }
    WriteAll(file, content + "x");
    expect_refused("longer");
    std::filesystem::remove(file);
    expect_refused("missing");
    WriteAll(file, content);
    EXPECT_EQ(Newest().path, Path(20));
  }
}

TEST_F(CheckpointTest, WhatIsNoRegularFileIsPassedOverByNameAndNotWaitedFor) {
  SaveOn(files_, directory_, 2, 10);
  for (const std::string kind : platform::kIrregularKinds) {
    for (const char* name : {"/manifest.json", "/rank-00001.safetensors"}) {
      std::filesystem::remove_all(Path(20));
      SaveOn(files_, directory_, 2, 20);
      std::filesystem::remove(Path(20) + name);
      platform::PutIrregularFile(kind, Path(20) + name);
      const std::string reason = "open " + Path(20) + name + ": it is " + kind + ", not a regular file";
      EXPECT_EQ(Newest().path, Path(10));
      EXPECT_THAT(skipped_, ElementsAre("step-20: " + reason));
      try {
        LoadsAs(Path(20), 1, 20);
        FAIL() << "it was loaded";
      } catch (const CheckpointError& error) {
        EXPECT_EQ(error.what(), "checkpoint " + Path(20) + ": " + reason);
      }
    }
  }
}

// A file that is longer than memory must not be read to find that it is too long.
TEST_F(CheckpointTest, AFileThatIsMuchTooLongIsPassedOverUnread) {
  SaveOn(files_, directory_, 2, 10);
  for (const std::string name : {"manifest.json", "rank-00001.safetensors"}) {
    std::filesystem::remove_all(Path(20));
    SaveOn(files_, directory_, 2, 20);
    std::filesystem::resize_file(Path(20) + "/" + name, std::uintmax_t{1} << 40);
    EXPECT_EQ(Newest().path, Path(10));
    EXPECT_THAT(skipped_, ElementsAre(HasSubstr("step-20: " + name + ": it has 1099511627776 bytes, ")));
  }
}

TEST_F(CheckpointTest, EveryBitOfTheManifestMatters) {
  SaveOn(files_, directory_, 1, 10);
  const std::string file = Path(10) + "/manifest.json";
  const std::string content = ReadAll(file);
  for (size_t bit = 0; bit < content.size() * 8; ++bit) {
    std::string flipped = content;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ASSERT_FALSE(ReadManifest(flipped).ok()) << "bit " << bit;
  }
}

// The digest is right: somebody else's file, or a later version's.
TEST_F(CheckpointTest, AManifestWithMembersOfOtherTypesIsRefused) {
  SaveOn(files_, directory_, 1, 10);
  const std::string content = ReadAll(Path(10) + "/manifest.json");
  const size_t begin = content.find("\",") + 2;
  const std::pair<std::string, std::string> changes[] = {
      {"\"format\": \"tandem-checkpoint\"", "\"format\": 5"},
      {"\"version\": 2", "\"version\": \"2\""},
      {"\"step\": 10", "\"step\": [10]"},
      {"\"files\": [", "\"files\": [7, "},
      {"\"bytes\": ", "\"bytes\": -"},
      {"\"begin\": 0", "\"begin\": {}"}};
  for (const auto& [from, to] : changes) {
    std::string rest = content.substr(begin);
    const size_t place = rest.find(from);
    ASSERT_NE(place, rest.npos) << from;
    rest.replace(place, from.size(), to);
    WriteAll(Path(10) + "/manifest.json", absl::StrCat("{\"xxh3_128\": \"", Digest(rest), "\",", rest));
    EXPECT_EQ(Newest().path, "") << to;
    EXPECT_THAT(skipped_, ElementsAre(HasSubstr("step-10: "))) << to;
  }
}

TEST_F(CheckpointTest, SwappedFilesAndFoldersAreRefused) {
  SaveOn(files_, directory_, 2, 10);
  SaveOn(files_, directory_, 2, 20);
  const auto swap = [](const std::string& a, const std::string& b) {
    std::filesystem::rename(a, a + ".x");
    std::filesystem::rename(b, a);
    std::filesystem::rename(a + ".x", b);
  };
  swap(Path(20) + "/rank-00000.safetensors", Path(20) + "/rank-00001.safetensors");
  EXPECT_EQ(Newest().path, Path(10));
  EXPECT_THAT(skipped_, ElementsAre(HasSubstr("rank-00000.safetensors")));
  swap(Path(20) + "/rank-00000.safetensors", Path(20) + "/rank-00001.safetensors");
  EXPECT_EQ(Newest().path, Path(20));
  swap(Path(20) + "/rank-00000.safetensors", Path(10) + "/rank-00000.safetensors");  // the same size
  EXPECT_EQ(Newest().path, "");
  swap(Path(20) + "/rank-00000.safetensors", Path(10) + "/rank-00000.safetensors");
  swap(Path(20), Path(10));
  EXPECT_EQ(Newest().path, "");
  EXPECT_THAT(skipped_, ElementsAre("step-20: manifest.json: it belongs to step 10, not to this folder",
                                    "step-10: manifest.json: it belongs to step 20, not to this folder"));
}

TEST_F(CheckpointTest, ACheckpointOfANewerVersionIsPassedOverWithTheReason) {
  SaveOn(files_, directory_, 1, 10);
  SaveOn(files_, directory_, 1, 20);
  std::string text = ReadAll(Path(20) + "/manifest.json");
  const size_t begin = text.find("\",") + 2;
  const size_t version = text.find("\"version\": 2");
  ASSERT_NE(version, text.npos);
  text.replace(version, 12, "\"version\": 3");
  text = absl::StrCat("{\"xxh3_128\": \"", Digest(text.substr(begin)), "\",", text.substr(begin));
  WriteAll(Path(20) + "/manifest.json", text);
  EXPECT_EQ(Newest().path, Path(10));
  EXPECT_THAT(skipped_, ElementsAre(HasSubstr("version 3, this build reads versions 1 to 2")));
}

TEST_F(CheckpointTest, LoadRefusesFilesOfTheWrongSize) {
  SaveOn(files_, directory_, 2, 10);
  WriteAll(Path(10) + "/rank-00001.safetensors", "short");
  try {
    LoadsAs(Path(10), 1, 10);
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank-00001.safetensors: it has 5 bytes, the manifest says "));
  }
  EXPECT_THROW(Inspect(files_, directory_ + "/nothing"), CheckpointError);
}

TEST_F(CheckpointTest, TheFileOfARankThatOwnedNothingIsVerifiedToo) {
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    const at::Tensor part = at::ones({comm.rank() < 2 ? 1 : 0});
    WholeSteps whole;
    Save(files_, comm, directory_, 3, OwnerOf(InfoOf(10)), InfoOf(10),
         {{.name = "w", .elements = 2, .begin = std::min(comm.rank(), 2), .data = &part}}, whole);
  });
  const at::Tensor whole = at::zeros({2});
  const std::vector<Shard> shards = {{.name = "w", .elements = 2, .data = &whole}};
  LoadAlone(files_, Path(10), shards);
  EXPECT_TRUE(at::equal(whole, at::ones({2})));
  const std::string file = Path(10) + "/rank-00002.safetensors";
  const std::string content = ReadAll(file);
  for (size_t byte = 0; byte < content.size(); ++byte) {
    std::string flipped = content;
    flipped[byte] ^= 1;
    WriteAll(file, flipped);
    EXPECT_THROW(LoadAlone(files_, Path(10), shards), CheckpointError) << byte;
  }
}

TEST_F(CheckpointTest, LoadNamesArraysThatDoNotFit) {
  SaveOn(files_, directory_, 2, 10);
  const auto reason = [&](const Shard& shard) {
    try {
      LoadAlone(files_, Path(10), {shard});
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string("loaded");
  };
  const at::Tensor floats = at::zeros({64});
  const at::Tensor doubles = at::zeros({64}, at::kDouble);
  EXPECT_THAT(reason({.name = "other", .elements = 64, .data = &floats}), HasSubstr("it has no array other"));
  EXPECT_THAT(reason({.name = "array1", .elements = 65, .data = &doubles}),
              HasSubstr("has 64 elements there, 65 here"));
  EXPECT_THAT(reason({.name = "array1", .elements = 64, .data = &floats}),
              HasSubstr("is of type F64 there, F32 here"));
  EXPECT_EQ(reason({.name = "array1", .elements = 64, .data = &doubles}), "loaded");
  EXPECT_TRUE(at::equal(doubles, Whole(10, 1)));
}

TEST_F(CheckpointTest, AValidCheckpointOfTheStepStays) {
  const Saved first = SaveOn(files_, directory_, 2, 10);
  const auto written = std::filesystem::last_write_time(Path(10) + "/manifest.json");
  const Saved second = SaveOn(files_, directory_, 3, 10, /*keep=*/10, /*attempt=*/2);
  EXPECT_EQ(second.path, first.path);
  EXPECT_EQ(second.bytes, first.bytes);
  EXPECT_EQ(second.manifest_digest, first.manifest_digest);
  EXPECT_EQ(std::filesystem::last_write_time(Path(10) + "/manifest.json"), written);
  EXPECT_THAT(Names(), ElementsAre("step-10"));
}

TEST_F(CheckpointTest, ADamagedCheckpointOfTheStepMakesWay) {
  SaveOn(files_, directory_, 2, 10);
  WriteAll(Path(10) + "/rank-00001.safetensors", "damage");
  SaveOn(files_, directory_, 2, 10, /*keep=*/10, /*attempt=*/2);
  EXPECT_TRUE(LoadsAs(Path(10), 3, 10));
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-10.damaged.2"));
}

TEST_F(CheckpointTest, LeftoversOfEarlierAttemptsAndOtherJobsAreRemovedAndThoseOfLaterAttemptsAreNot) {
  for (const char* name :
       {"step-5.tmp.1.0123456789ab", "step-6.tmp.2.0123456789ab", "step-7.tmp.3.0123456789ab",
        "step-7.tmp.3.other", "step-7.tmp.3", "step-x.tmp.1", "notes"}) {
    std::filesystem::create_directories(directory_ + "/" + name);
    WriteAll(directory_ + "/" + name + "/file", "x");
  }
  SaveOn(files_, directory_, 2, 10, /*keep=*/3, /*attempt=*/2);
  EXPECT_THAT(Names(), ElementsAre("notes", "step-10", "step-7.tmp.3.0123456789ab", "step-x.tmp.1"));
}

TEST_F(CheckpointTest, TheNewestValidOnesAreKept) {
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

TEST_F(CheckpointTest, ASaveSaysWhichOlderOnesAreGone) {
  EXPECT_THAT(SaveOn(files_, directory_, 2, 10, /*keep=*/2).removed_steps, ElementsAre());
  EXPECT_THAT(SaveOn(files_, directory_, 2, 20, /*keep=*/2).removed_steps, ElementsAre());
  EXPECT_THAT(SaveOn(files_, directory_, 2, 30, /*keep=*/2).removed_steps, ElementsAre(10));
  EXPECT_THAT(SaveOn(files_, directory_, 2, 40, /*keep=*/1).removed_steps, ElementsAre(30, 20));
}

// Whatever comes of an old checkpoint, the new one is there and counts as saved.
TEST_F(CheckpointTest, AnOldOneThatCannotBeRemovedDoesNotFailTheSave) {
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

TEST_F(CheckpointTest, WhatCannotBeRemovedIsInNoLaterSavesWayAndGoesOnceItCan) {
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
TEST_F(CheckpointTest, TemporaryFilesThatCannotBeRemovedAreInNoSavesWay) {
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

// The other ranks have gone on, and nobody would learn of a checkpoint that is there.
TEST_F(CheckpointTest, ASaveThatHasCommittedIsSavedAlsoWhereNoMemoryIsLeftToLookAtTheOlderOnes) {
  class NoMemory final : public platform::ForwardingFiles {
   public:
    absl::Status Rename(const std::string&, const std::string&) override { throw std::bad_alloc(); }
  } files;
  SaveOn(files_, directory_, 2, 10);
  const Saved saved = SaveOn(files, directory_, 2, 20, /*keep=*/1);
  EXPECT_EQ(saved.path, Path(20));
  EXPECT_THAT(saved.not_removed, ElementsAre(directory_ + ": std::bad_alloc"));
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20"));
}

// A file system that fails for a moment says nothing about what lies there. To go on from an older checkpoint
// loses steps, and to save in its place loses the checkpoint.
TEST_F(CheckpointTest, OneThatCannotBeReadIsNeitherPassedOverNorReplaced) {
  SaveOn(files_, directory_, 2, 10);
  SaveOn(files_, directory_, 2, 20);
  for (const int error : {ESTALE, EIO, EMFILE, ENOMEM, ETIMEDOUT, EACCES}) {
    for (const std::string name : {"/manifest.json", "/rank-00001.safetensors"}) {
      SCOPED_TRACE(name + " " + strerror(error));
      UnreadableFiles files("/step-20" + name, error);
      const std::string reason = "cannot be read now, which does not say that it is damaged: open " +
                                 Path(20) + name + ": " + strerror(error);
      try {
        Newest(2, {{0, &files}, {1, &files}});
        ADD_FAILURE() << "found";
      } catch (const CheckpointUnreadable& unreadable) {
        EXPECT_THAT(unreadable.what(), HasSubstr("checkpoint " + Path(20) + " " + reason));
      }
      EXPECT_THAT(skipped_, ElementsAre());
      comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
        RankState state(comm.rank(), 2);
        state.Set(7);
        try {
          WholeSteps whole;
          Save(files, comm, directory_, 10, OwnerOf(InfoOf(20)), InfoOf(20), state.shards(), whole);
          ADD_FAILURE() << "saved";
        } catch (const CheckpointError& failed) {
          EXPECT_EQ(failed.what(), "checkpoint: rank 0: " + Path(20) + " is there already and " + reason);
        }
      });
      EXPECT_THAT(Names(), ElementsAre("step-10", "step-20"));
      EXPECT_TRUE(LoadsAs(Path(20), 1, 20));
    }
  }
  UnreadableFiles files("/step-20/manifest.json", ESTALE);
  EXPECT_THROW(Inspect(files, Path(20)), CheckpointUnreadable);
  EXPECT_EQ(Newest().path, Path(20));
}

TEST_F(CheckpointTest, AFileInAStepsPlaceIsPassedOverAndMakesWay) {
  SaveOn(files_, directory_, 2, 10);
  WriteAll(Path(20), "x");
  EXPECT_EQ(Newest().path, Path(10));
  EXPECT_THAT(skipped_, ElementsAre("step-20: open " + Path(20) + "/manifest.json: Not a directory"));
  SaveOn(files_, directory_, 2, 20);
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20", "step-20.damaged.1"));
}

TEST_F(CheckpointTest, FailureOfOneRankIsTheErrorOfAllAndLeavesNothing) {
  SaveOn(files_, directory_, 3, 10);
  std::vector<std::string> errors(3);
  FaultyFiles broken(FaultyFiles::Fault::kFullDisk, 1);
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    RankState state(comm.rank(), 3);
    state.Set(20);
    WholeSteps whole;
    try {
      Save(comm.rank() == 1 ? static_cast<platform::Files&>(broken) : files_, comm, directory_, 3,
           OwnerOf(InfoOf(20)), InfoOf(20), state.shards(), whole);
    } catch (const CheckpointError& error) {
      errors[static_cast<size_t>(comm.rank())] = error.what();
    }
  });
  EXPECT_EQ(errors[0],
            absl::StrCat("checkpoint: rank 1: write ", directory_,
                         "/step-20.tmp.1.0123456789ab/rank-00001.safetensors: No space left on device"));
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], errors[0]);
  EXPECT_THAT(Names(), ElementsAre("step-10"));
}

TEST_F(CheckpointTest, ArraysThatAreNotCoveredOnceAreRefusedOnEveryRank) {
  for (const int64_t begin : {0, 3, 5}) {  // twice, an overlap, a gap
    int refused = 0;
    std::mutex mu;
    comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
      const at::Tensor part = at::zeros({4});
      WholeSteps whole;
      try {
        Save(files_, comm, directory_, 3, OwnerOf(InfoOf(20)), InfoOf(20),
             {{.name = "w", .elements = 9, .begin = comm.rank() == 0 ? 0 : begin, .data = &part}}, whole);
      } catch (const CheckpointError& error) {
        const std::lock_guard lock(mu);
        EXPECT_THAT(error.what(), HasSubstr("array w has a piece at element"));
        ++refused;
      }
    });
    EXPECT_EQ(refused, 2);
    EXPECT_TRUE(Names().empty());
  }
}

// A power cut at every operation: what is found afterwards is the old checkpoint or the new one, whole; and
// the next attempt can save.
TEST_F(CheckpointTest, APowerCutAtEveryOperationLeavesTheOldOrTheNew) {
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

TEST_F(CheckpointTest, AFullDiskLeavesNoTemporaryFilesAndTheOldOnes) {
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

TEST_F(CheckpointTest, OneErrorAtAnyOperationReachesAllRanksAndTheNextSaveWorks) {
  bool finished = false;
  for (int k = 1; !finished; ++k) {
    SCOPED_TRACE(k);
    std::filesystem::remove_all(directory_);
    SaveOn(files_, directory_, 2, 10);
    FaultyFiles files(FaultyFiles::Fault::kOneError, k);
    try {
      finished = SaveOn(files, directory_, 2, 20, /*keep=*/1).not_removed.empty();
      EXPECT_EQ(finished, files.operations() < k);
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

TEST(FolderNamesTest, OnlyExactNamesAreSteps) {
  EXPECT_EQ(StepOfName("step-0"), 0);
  EXPECT_EQ(StepOfName("step-200"), 200);
  for (const char* name :
       {"step-", "step-01", "step-1x", "step--1", "step-1.tmp.1", "Step-1", "step-99999999999999999999"}) {
    EXPECT_EQ(StepOfName(name), std::nullopt) << name;
  }
  EXPECT_EQ(TemporaryName(7, {.job = "ab.c", .name = "", .attempt = 3, .host = ""}), "step-7.tmp.3.ab.c");
  EXPECT_EQ(ParseTemporaryName("step-7.tmp.3.ab.c")->attempt, 3);
  EXPECT_EQ(ParseTemporaryName("step-7.tmp.3.ab.c")->job, "ab.c");
  EXPECT_EQ(ParseTemporaryName("step-7.tmp.3")->job, "") << "of an older build";
  for (const char* name : {"step-7", "x.tmp.3.ab", "step-7.tmp.x.ab", "step-7.tmp..ab"}) {
    EXPECT_FALSE(ParseTemporaryName(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace tandem::checkpoint
