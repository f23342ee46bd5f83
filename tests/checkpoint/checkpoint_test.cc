#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "checkpoint/same_folder.h"
#include "comm/run_thread_ranks.h"
#include "platform/files.h"
#include "platform/random.h"
#include "tests/checkpoint/arrays.h"
#include "tests/checkpoint/faulty_files.h"

namespace tandem::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::Arrays;
using test::FaultyFiles;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = testing::TempDir() + "tandem-checkpoint-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  // Saves step `step` with `ranks` ranks; the error, or "".
  std::string SaveStep(int64_t step, int ranks = 2, int keep = 100,
                       platform::Files& files = platform::SystemFiles()) {
    std::string failure;
    try {
      comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
        const Arrays arrays(ranks, comm.rank(), static_cast<double>(step));
        Save(files, comm, folder_, keep, {.step = step, .attempt = 1, .job = "j", .layout_digest = "l"},
             arrays.shards());
      });
    } catch (const CheckpointError& error) {
      failure = error.what();
    }
    return failure;
  }

  void ExpectHolds(const std::string& path, int64_t step, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const Arrays loaded = Arrays::Empty(ranks, rank);
      Load(platform::SystemFiles(), path, loaded.shards());
      EXPECT_TRUE(loaded == Arrays(ranks, rank, static_cast<double>(step)))
          << path << " rank " << rank << " of " << ranks;
    }
  }

  Found Newest(std::vector<std::string>* reasons = nullptr) {
    return FindNewest(platform::SystemFiles(), folder_, [&](const std::string&, const std::string& reason) {
      if (reasons != nullptr) reasons->push_back(reason);
    });
  }

  std::vector<std::string> Names() { return *platform::SystemFiles().List(folder_); }

  std::string folder_;
};

TEST_F(CheckpointTest, AnyNumberOfRanksLoadsWhatAnyOtherSaved) {
  int64_t step = 0;
  for (int saving = 1; saving <= 4; ++saving) {
    ++step;
    ASSERT_EQ(SaveStep(step, saving), "");
    for (int loading = 1; loading <= 4; ++loading) {
      ExpectHolds(folder_ + "/step-" + std::to_string(step), step, loading);
    }
  }
  EXPECT_EQ(Newest().info.step, 4);
  EXPECT_EQ(Newest().info.job, "j");
}

TEST_F(CheckpointTest, EveryDamagedFileIsRefusedByNameAndTheOlderOneServes) {
  const auto damages = std::vector<std::pair<std::string, void (*)(const fs::path&)>>{
      {"truncated", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 1); }},
      {"missing", [](const fs::path& file) { fs::remove(file); }},
      {"empty", [](const fs::path& file) { fs::resize_file(file, 0); }},
      {"bit flipped", [](const fs::path& file) {
         std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
         const auto at = static_cast<std::streamoff>(fs::file_size(file) / 2);
         stream.seekg(at);
         const char byte = static_cast<char>(stream.get() ^ 4);
         stream.seekp(at);
         stream.put(byte);
       }}};
  for (const char* name : {"manifest.json", "rank-0.safetensors", "rank-1.safetensors"}) {
    for (const auto& [what, damage] : damages) {
      SCOPED_TRACE(std::string(name) + " " + what);
      fs::remove_all(folder_);
      ASSERT_EQ(SaveStep(1), "");
      ASSERT_EQ(SaveStep(2), "");
      damage(folder_ + "/step-2/" + name);
      std::vector<std::string> reasons;
      EXPECT_EQ(Newest(&reasons).info.step, 1);
      ASSERT_EQ(reasons.size(), 1u);
      EXPECT_THAT(reasons[0], HasSubstr(name));
      EXPECT_THROW(
          {
            const Arrays loaded = Arrays::Empty(1, 0);
            Load(platform::SystemFiles(), folder_ + "/step-2", loaded.shards());
          },
          CheckpointError);
    }
  }
}

TEST_F(CheckpointTest, SwappedFilesAndFilesOfAnotherStepAreRefused) {
  ASSERT_EQ(SaveStep(1), "");
  ASSERT_EQ(SaveStep(2), "");
  ASSERT_EQ(SaveStep(3), "");
  const std::string third = folder_ + "/step-3/";
  fs::rename(third + "rank-0.safetensors", third + "x");
  fs::rename(third + "rank-1.safetensors", third + "rank-0.safetensors");
  fs::rename(third + "x", third + "rank-1.safetensors");
  fs::copy_file(folder_ + "/step-1/rank-1.safetensors", folder_ + "/step-2/rank-1.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(Newest().info.step, 1);
}

TEST_F(CheckpointTest, ANewerVersionIsSaidToBeThat) {
  ASSERT_EQ(SaveStep(1), "");
  const std::string path = folder_ + "/step-1/manifest.json";
  std::string text = *platform::SystemFiles().Read(path);
  const std::string version = "\"version\": 1";
  ASSERT_NE(text.find(version), std::string::npos);
  text.replace(text.find(version), version.size(), "\"version\": 2");
  ASSERT_TRUE(platform::SystemFiles().Write(path, text).ok());
  std::vector<std::string> reasons;
  EXPECT_EQ(Newest(&reasons).path, "");
  EXPECT_THAT(reasons.at(0), HasSubstr("newer"));
}

// Death at any file operation of any rank: what is newest is the old one or the new one, and it is whole.
TEST_F(CheckpointTest, DeathAtAnyFileOperationLeavesTheOldOrTheNewOne) {
  int64_t deaths = 0;
  for (int fail_at = 1;; ++fail_at) {
    fs::remove_all(folder_);
    ASSERT_EQ(SaveStep(1), "");
    FaultyFiles files(fail_at, /*for_good=*/true);
    SaveStep(2, /*ranks=*/2, /*keep=*/1, files);
    const Found newest = Newest();
    ASSERT_NE(newest.path, "") << "operation " << fail_at;
    ExpectHolds(newest.path, newest.info.step, 2);
    if (files.operations() < fail_at) {
      break;
    }
    ++deaths;
  }
  EXPECT_GT(deaths, 8);
  EXPECT_EQ(Names(), (std::vector<std::string>{"step-2"}));  // the last round met no failure
}

TEST_F(CheckpointTest, AFullDiskFailsOnEveryRankLeavesNothingAndTheNextSaveWorks) {
  ASSERT_EQ(SaveStep(1), "");
  for (int fail_at = 1; fail_at <= 4; ++fail_at) {  // until the shards and the manifest are written
    FaultyFiles files(fail_at, /*for_good=*/false);
    EXPECT_THAT(SaveStep(2, 2, 100, files), HasSubstr("No space left on device"));
    EXPECT_EQ(Names(), (std::vector<std::string>{"step-1"})) << fail_at;
  }
  EXPECT_EQ(SaveStep(2), "");
  EXPECT_EQ(Newest().info.step, 2);
}

TEST_F(CheckpointTest, OnlyTheNewestAreKept) {
  for (int64_t step = 8; step <= 12; ++step) {
    ASSERT_EQ(SaveStep(step, 2, /*keep=*/2), "");
  }
  EXPECT_EQ(Names(), (std::vector<std::string>{"step-11", "step-12"}));
}

TEST_F(CheckpointTest, AWholeOneOfTheSameNameStaysAndADamagedOneIsNotOverwritten) {
  ASSERT_EQ(SaveStep(1), "");
  ASSERT_EQ(SaveStep(1), "");
  ExpectHolds(folder_ + "/step-1", 1, 2);
  fs::remove(folder_ + "/step-1/rank-0.safetensors");
  EXPECT_THAT(SaveStep(1), HasSubstr("is not overwritten"));
}

TEST_F(CheckpointTest, AnotherModelIsRefusedWithBothSizes) {
  ASSERT_EQ(SaveStep(1), "");
  const Arrays arrays = Arrays::Empty(1, 0);
  std::vector<Shard> shards = arrays.shards();
  shards[0].elements = 128;
  try {
    Load(platform::SystemFiles(), folder_ + "/step-1", shards);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds 256 elements of F32, this model needs 128 of F32"));
  }
}

TEST_F(CheckpointTest, RanksThatSeeTheSameFolderAgree) {
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    CheckSameFolder(platform::SystemFiles(), comm, folder_ + "/new", platform::SystemRandom(),
                    absl::Seconds(5));
  });
  EXPECT_TRUE(platform::SystemFiles().List(folder_ + "/new")->empty());
}

TEST_F(CheckpointTest, ARankThatSeesAnotherFolderIsNamedOnAllRanks) {
  std::atomic<int> told = 0;
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    try {
      CheckSameFolder(platform::SystemFiles(), comm, folder_ + "/" + std::to_string(comm.rank()),
                      platform::SystemRandom(), absl::ZeroDuration());
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("is not the same folder on rank 1"));
      ++told;
    }
  });
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace tandem::checkpoint
