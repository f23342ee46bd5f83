// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/verify.h"
#include "comm/communicator.h"
#include "platform/files.h"
#include "platform/xxh3.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/elements_of.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/comm/run_thread_ranks.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(CheckpointTest, AnyRanksLoadWhatAnyRanksSaved) {
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
    EXPECT_EQ(info.parameters_digest, "parameters");
  }
  EXPECT_EQ(Newest().path, Path(40));
  EXPECT_EQ(Newest().info.step, 40);
}

TEST_F(CheckpointTest, PiecesOfWeightsHaveDigests) {
  const Manifest manifest =
      *ReadFolderManifest(files_, SaveOn(files_, directory_, /*ranks=*/3, /*step=*/10).path);
  int pieces = 0;
  for (const ManifestArray& array : manifest.arrays) {
    for (const ManifestPiece& piece : array.pieces) {
      ++pieces;
      const std::string content =
          ReadAll(Path(10) + "/" + manifest.files[static_cast<size_t>(piece.file)].name);
      const auto header = ReadSafetensorsHeader(content, static_cast<int64_t>(content.size()));
      const TensorPlace& place = header->tensors.at(TensorName(array.name, array.kind));
      EXPECT_EQ(piece.digest,
                platform::Xxh3Of(std::string_view(content).substr(
                    static_cast<size_t>(place.begin), static_cast<size_t>(place.end - place.begin))))
          << array.name;
    }
  }
  EXPECT_GT(pieces, 3);
}

TEST_F(CheckpointTest, EmptyOrMissingDirectoryHasNoNewest) {
  EXPECT_EQ(Newest().path, "");
  std::filesystem::create_directories(directory_ + "/something");
  EXPECT_EQ(Newest().path, "");
  EXPECT_TRUE(skipped_.empty());
}

TEST_F(CheckpointTest, EmptyRanksFileIsVerifiedToo) {
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    const at::Tensor part = at::ones({comm.rank() < 2 ? 1 : 0});
    SaveShards(files_, comm, directory_, 10,
               {{.name = "w", .shape = {2}, .begin = std::min(comm.rank(), 2), .data = ElementsOf(part)}});
  });
  const at::Tensor whole = at::zeros({2});
  const std::vector<Shard> shards = {{.name = "w", .shape = {2}, .data = ElementsOf(whole)}};
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
    return ErrorOf([&] { LoadAlone(files_, Path(10), {shard}); });
  };
  const at::Tensor floats = at::zeros({64});
  const at::Tensor doubles = at::zeros({64}, at::kDouble);
  EXPECT_THAT(reason({.name = "other", .shape = {64}, .data = ElementsOf(floats)}),
              HasSubstr("it has no array other"));
  EXPECT_THAT(reason({.name = "array1", .shape = {65}, .data = ElementsOf(doubles)}),
              HasSubstr("is [64] there, [65] here"));
  EXPECT_THAT(reason({.name = "array1", .shape = {64}, .data = ElementsOf(floats)}),
              HasSubstr("is of type F64 there, F32 here"));
  EXPECT_EQ(reason({.name = "array1", .shape = {64}, .data = ElementsOf(doubles)}), "");
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

TEST_F(CheckpointTest, UncoveredArraysAreRefusedOnEveryRank) {
  for (const int64_t begin : {0, 3, 5}) {  // twice, an overlap, a gap
    comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
      const at::Tensor part = at::zeros({4});
      const std::vector<Shard> shards = {
          {.name = "w", .shape = {9}, .begin = comm.rank() == 0 ? 0 : begin, .data = ElementsOf(part)}};
      EXPECT_THAT(ErrorOf([&] { SaveShards(files_, comm, directory_, 20, shards); }),
                  HasSubstr("array w has a piece at element"));
    });
    EXPECT_TRUE(Names().empty());
  }
}

TEST_F(CheckpointTest, OnlyLaterOnesAreFoundAfterAStep) {
  SaveOn(files_, directory_, 2, 10);
  SaveOn(files_, directory_, 2, 20);
  for (const auto& [after, found] : {std::pair(9, 20), std::pair(19, 20), std::pair(20, 0)}) {
    comm::RunThreadRanks(2, [&, after = after, found = found](comm::Communicator& comm) {
      const Found newest = FindNewest(
          files_, comm, directory_, after,
          {.skipped = [](const std::string&, const std::string&) {}, .verified = [](const WorkProgress&) {}});
      EXPECT_EQ(newest.info.step, found);
    });
  }
}

TEST_F(CheckpointTest, InspectTakesAnyPathToAFolder) {
  SaveOn(files_, directory_, 2, 10);
  EXPECT_EQ(Inspect(files_, Path(10)).info.step, 10);
  EXPECT_EQ(Inspect(files_, Path(10) + "/").info.step, 10);
  std::filesystem::rename(Path(10), directory_ + "/mine");
  EXPECT_EQ(Inspect(files_, directory_ + "/mine/").info.step, 10) << "a name of the user's own";
  std::filesystem::rename(directory_ + "/mine", Path(20));
  for (const std::string& path : {Path(20), Path(20) + "/"}) {
    EXPECT_THROW(Inspect(files_, path), CheckpointError) << "it is of step 10";
  }
}

// Permissions do not come by waiting, as a disk does.
TEST_F(CheckpointTest, ForbiddenFolderIsNotRetried) {
  SaveOn(files_, directory_, 2, 10);
  const auto is_to_be_tried_again = [&](int error) {
    UnreadableFiles unreadable("/manifest.json", error);
    try {
      Inspect(unreadable, Path(10));
      ADD_FAILURE() << "it was read";
    } catch (const CheckpointUnreadable&) {
      return true;
    } catch (const CheckpointError&) {
    }
    return false;
  };
  EXPECT_FALSE(is_to_be_tried_again(EACCES));
  EXPECT_TRUE(is_to_be_tried_again(EIO));
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

// Each reads what it needs, which may be much more than another: it is read in parts, and where one fails all
// know.
class LoadTogetherTest : public CheckpointTest {
 protected:
  // The error of each of `ranks` ranks; empty: it has loaded step 10.
  std::vector<std::string> ErrorsOfLoad(int ranks, const FilesOfRanks& files) {
    std::vector<std::string> errors(static_cast<size_t>(ranks));
    comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
      RankState state(comm.rank(), ranks);
      errors[static_cast<size_t>(comm.rank())] = ErrorOf([&] {
        Load(FilesOf(files, comm), comm, Path(10), state.shards(), [](const WorkProgress&) {});
        EXPECT_TRUE(state.Is(10));
      });
    });
    return errors;
  }
};

TEST_F(LoadTogetherTest, UnreadableFileIsEveryRanksError) {
  SaveOn(files_, directory_, 3, 10);
  UnreadableFiles unreadable("/rank-00002.safetensors", ESTALE);
  for (const std::string& error : ErrorsOfLoad(3, {{2, &unreadable}})) {
    EXPECT_EQ(error, "checkpoint " + Path(10) + ": rank 2: open " + Path(10) +
                         "/rank-00002.safetensors: Stale file handle");
  }
}

TEST_F(LoadTogetherTest, ManyPartsEqualOneRead) {
  // More than two parts, which begin and end within its arrays.
  constexpr int64_t kElements = 5 * platform::kFilePartBytes / 8 + 3;
  const at::Tensor first = at::arange(kElements, at::kFloat);
  const at::Tensor second = at::arange(kElements, at::kFloat).neg();
  comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
    SaveShards(files_, comm, directory_, 10,
               {{.name = "first", .shape = {kElements}, .data = ElementsOf(first)},
                {.name = "second", .shape = {kElements}, .data = ElementsOf(second)}});
  });
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    const int64_t begin = comm.rank() * (kElements / 3);
    const int64_t size = comm.rank() < 2 ? kElements / 3 : kElements - begin;
    const at::Tensor part = at::zeros({size});
    const at::Tensor negative = at::zeros({size});
    Load(files_, comm, Path(10),
         {{.name = "first", .shape = {kElements}, .begin = begin, .data = ElementsOf(part)},
          {.name = "second", .shape = {kElements}, .begin = begin, .data = ElementsOf(negative)}},
         [](const WorkProgress&) {});
    EXPECT_TRUE(at::equal(part, first.narrow(0, begin, size)));
    EXPECT_TRUE(at::equal(negative, second.narrow(0, begin, size)));
  });
}

// A folder that the machines do not share has the same name on each.
TEST_F(LoadTogetherTest, ShardsOfTwoCheckpointsAreNotLoadedTogether) {
  SaveOn(files_, directory_, 2, 10);
  SaveOn(files_, directory_, 2, 20);
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    RankState state(comm.rank(), 2);
    const std::string path = Path(comm.rank() == 0 ? 10 : 20);
    EXPECT_THAT(ErrorOf([&] { Load(files_, comm, path, state.shards(), [](const WorkProgress&) {}); }),
                HasSubstr("rank 1: it sees another manifest.json than rank 0"));
  });
}

// The header of a file says where its arrays lie, and is read before the digest is known.
TEST_F(LoadTogetherTest, MisreadHeaderMisplacesNoArray) {
  const at::Tensor a = at::arange(8, at::kFloat);
  const at::Tensor b = at::arange(8, at::kFloat).add(100);
  comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
    SaveShards(files_, comm, directory_, 10,
               {{.name = "a", .shape = {8}, .data = ElementsOf(a)},
                {.name = "b", .shape = {8}, .data = ElementsOf(b)}});
  });
  bool swapped = false;
  ReplacedFiles files;
  files.read_range = [&](const std::string& path, int64_t begin, int64_t bytes) {
    absl::StatusOr<std::string> content = files_.ReadRange(path, begin, bytes);
    if (begin == 0 && bytes < *files_.Size(path) && content.ok() &&
        content->find("\"b\"") != std::string::npos) {
      std::swap(content->at(content->find("\"a\"") + 1), content->at(content->find("\"b\"") + 1));
      swapped = true;
    }
    return content;
  };
  const at::Tensor to_a = at::zeros({8}, at::kFloat);
  const at::Tensor to_b = at::zeros({8}, at::kFloat);
  const std::vector<Shard> shards = {{.name = "a", .shape = {8}, .data = ElementsOf(to_a)},
                                     {.name = "b", .shape = {8}, .data = ElementsOf(to_b)}};
  EXPECT_THAT(ErrorOf([&] { LoadAlone(files, Path(10), shards); }),
              HasSubstr("rank-00000.safetensors changed while it was read"));
  EXPECT_TRUE(swapped);
}

}  // namespace
}  // namespace tandem::checkpoint
