// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"
#include "platform/xxh3.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/platform/irregular_files.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Checkpoints that are not what was saved, or cannot be read.
using DamagedCheckpointTest = CheckpointTest;

TEST_F(DamagedCheckpointTest, DamagedStepIsSkippedForTheOneBefore) {
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
      EXPECT_THAT(ErrorOf([&] { LoadsAs(Path(20), 1, 20); }), HasSubstr(name));
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

TEST_F(DamagedCheckpointTest, IrregularFileIsSkippedWithoutWaiting) {
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
      EXPECT_EQ(ErrorOf([&] { LoadsAs(Path(20), 1, 20); }), "checkpoint " + Path(20) + ": " + reason);
    }
  }
}

TEST_F(DamagedCheckpointTest, LinkToItselfIsSkipped) {
  SaveOn(files_, directory_, 2, 10);
  for (const char* name : {"", "/manifest.json", "/rank-00001.safetensors"}) {
    std::filesystem::remove_all(Path(20));
    SaveOn(files_, directory_, 2, 20);
    const std::string file = Path(20) + name;
    std::filesystem::remove_all(file);
    std::filesystem::create_symlink(std::filesystem::path(file).filename(), file);
    EXPECT_EQ(Newest().path, Path(10)) << name;
    EXPECT_THAT(skipped_, ElementsAre(HasSubstr("Too many levels of symbolic links"))) << name;
    EXPECT_THROW(LoadsAs(Path(20), 1, 20), CheckpointError) << name;
  }
}

// A file that is longer than memory must not be read to find that it is too long.
TEST_F(DamagedCheckpointTest, OverlongFileIsSkippedUnread) {
  SaveOn(files_, directory_, 2, 10);
  for (const std::string name : {"manifest.json", "rank-00001.safetensors"}) {
    std::filesystem::remove_all(Path(20));
    SaveOn(files_, directory_, 2, 20);
    std::filesystem::resize_file(Path(20) + "/" + name, std::uintmax_t{1} << 40);
    EXPECT_EQ(Newest().path, Path(10));
    EXPECT_THAT(skipped_, ElementsAre(HasSubstr("step-20: " + name + ": it has 1099511627776 bytes, ")));
  }
}

TEST_F(DamagedCheckpointTest, EveryBitOfTheManifestMatters) {
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
TEST_F(DamagedCheckpointTest, ManifestWithWrongTypesIsRefused) {
  SaveOn(files_, directory_, 1, 10);
  const std::string content = ReadAll(Path(10) + "/manifest.json");
  const size_t begin = content.find("\",") + 2;
  const std::pair<std::string, std::string> changes[] = {
      {"\"format\": \"tandem-checkpoint\"", "\"format\": 5"},
      {"\"version\": 3", "\"version\": \"2\""},
      {"\"step\": 10", "\"step\": [10]"},
      {"\"files\": [", "\"files\": [7, "},
      {"\"bytes\": ", "\"bytes\": -"},
      {"\"begin\": 0", "\"begin\": {}"}};
  for (const auto& [from, to] : changes) {
    std::string rest = content.substr(begin);
    const size_t place = rest.find(from);
    ASSERT_NE(place, rest.npos) << from;
    rest.replace(place, from.size(), to);
    WriteAll(Path(10) + "/manifest.json",
             absl::StrCat("{\"xxh3_128\": \"", platform::Xxh3Of(rest), "\",", rest));
    EXPECT_EQ(Newest().path, "") << to;
    EXPECT_THAT(skipped_, ElementsAre(HasSubstr("step-10: "))) << to;
  }
}

TEST_F(DamagedCheckpointTest, SwappedFilesAndFoldersAreRefused) {
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

TEST_F(DamagedCheckpointTest, NewerVersionIsNotSkipped) {
  SaveOn(files_, directory_, 1, 10);
  SaveOn(files_, directory_, 1, 20);
  std::string text = ReadAll(Path(20) + "/manifest.json");
  const size_t begin = text.find("\",") + 2;
  const size_t version = text.find("\"version\": 3");
  ASSERT_NE(version, text.npos);
  text.replace(version, 12, "\"version\": 4");
  text = absl::StrCat("{\"xxh3_128\": \"", platform::Xxh3Of(text.substr(begin)), "\",", text.substr(begin));
  WriteAll(Path(20) + "/manifest.json", text);
  EXPECT_THAT(ErrorOf<CheckpointTooNew>([&] { Newest(); }),
              HasSubstr("step-20: manifest.json: it is of version 4, this build reads versions 2 to 3; use "
                        "the build that wrote it or a newer one"));
  EXPECT_THAT(skipped_, IsEmpty());
}

TEST_F(DamagedCheckpointTest, LoadRefusesFilesOfTheWrongSize) {
  SaveOn(files_, directory_, 2, 10);
  WriteAll(Path(10) + "/rank-00001.safetensors", "short");
  EXPECT_THAT(ErrorOf([&] { LoadsAs(Path(10), 1, 10); }),
              HasSubstr("rank-00001.safetensors: it has 5 bytes, the manifest says "));
  EXPECT_THROW(Inspect(files_, directory_ + "/nothing"), CheckpointError);
}

TEST_F(DamagedCheckpointTest, ADamagedCheckpointOfTheStepMakesWay) {
  SaveOn(files_, directory_, 2, 10);
  WriteAll(Path(10) + "/rank-00001.safetensors", "damage");
  SaveOn(files_, directory_, 2, 10, /*keep=*/10, /*attempt=*/2);
  EXPECT_TRUE(LoadsAs(Path(10), 3, 10));
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-10.damaged.2"));
}

// A file system that fails for a moment says nothing about what lies there. To go on from an older checkpoint
// loses steps, and to save in its place loses the checkpoint.
TEST_F(DamagedCheckpointTest, UnreadableStepIsNeitherSkippedNorReplaced) {
  SaveOn(files_, directory_, 2, 10);
  SaveOn(files_, directory_, 2, 20);
  for (const int error : {ESTALE, EIO, EMFILE, ENOMEM, ETIMEDOUT, EACCES}) {
    for (const std::string name : {"/manifest.json", "/rank-00001.safetensors"}) {
      SCOPED_TRACE(name + " " + strerror(error));
      UnreadableFiles files("/step-20" + name, error);
      const std::string reason = absl::StrCat("cannot be read now, which does not say that it is damaged: ",
                                              name == "/manifest.json" ? "" : "rank 1: ", "open ", Path(20),
                                              name, ": ", strerror(error));
      EXPECT_THAT(ErrorOf<CheckpointUnreadable>([&] {
                    Newest(2, {{0, &files}, {1, &files}});
                  }),
                  HasSubstr("checkpoint " + Path(20) + " " + reason));
      EXPECT_THAT(skipped_, ElementsAre());
      EXPECT_EQ(ErrorOf([&] { SaveOn(files, directory_, 2, 20); }),
                "checkpoint: rank 0: " + Path(20) + " exists already and " + reason);
      EXPECT_THAT(Names(), ElementsAre("step-10", "step-20"));
      EXPECT_TRUE(LoadsAs(Path(20), 1, 20));
    }
  }
  UnreadableFiles files("/step-20/manifest.json", ESTALE);
  EXPECT_THROW(Inspect(files, Path(20)), CheckpointUnreadable);
  EXPECT_EQ(Newest().path, Path(20));
}

TEST_F(DamagedCheckpointTest, FileInAStepsPlaceMakesWay) {
  SaveOn(files_, directory_, 2, 10);
  WriteAll(Path(20), "x");
  EXPECT_EQ(Newest().path, Path(10));
  EXPECT_THAT(skipped_, ElementsAre("step-20: open " + Path(20) + "/manifest.json: Not a directory"));
  SaveOn(files_, directory_, 2, 20);
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20", "step-20.damaged.1"));
}

}  // namespace
}  // namespace tandem::checkpoint
