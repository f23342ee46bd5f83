// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/verify.h"
#include "comm/communicator.h"
#include "platform/files.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/elements_of.h"
#include "tests/checkpoint/faulty_files.h"

namespace tandem::checkpoint {
namespace {

using testing::HasSubstr;

// Each reads what it needs, which may be much more than another: it is read in parts, and where one fails all
// know.
class LoadTogetherTest : public CheckpointTest {
 protected:
  // The error of each of `ranks` ranks; empty: it has loaded step 10.
  std::vector<std::string> ErrorsOfLoad(int ranks, const std::map<int, platform::Files*>& files) {
    std::vector<std::string> errors(static_cast<size_t>(ranks));
    comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
      const auto own = files.find(comm.rank());
      RankState state(comm.rank(), ranks);
      std::string& error = errors[static_cast<size_t>(comm.rank())];
      try {
        Load(own == files.end() ? files_ : *own->second, comm, Path(10), state.shards(),
             [](const WorkProgress&) {});
        error = state.Is(10) ? "" : "other values";
      } catch (const CheckpointError& failed) {
        error = failed.what();
      }
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
    WholeSteps whole;
    Save(files_, comm, FolderAt(directory_), 3, OwnerOf(InfoOf(10)), InfoOf(10),
         {{.name = "first", .shape = {kElements}, .data = ElementsOf(first)},
          {.name = "second", .shape = {kElements}, .data = ElementsOf(second)}},
         whole);
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
    try {
      Load(files_, comm, Path(comm.rank() == 0 ? 10 : 20), state.shards(), [](const WorkProgress&) {});
      ADD_FAILURE() << "rank " << comm.rank() << " has loaded";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1: it sees another manifest.json than rank 0"));
    }
  });
}

// The header of a file says where its arrays lie, and is read before the digest is known.
TEST_F(LoadTogetherTest, MisreadHeaderMisplacesNoArray) {
  const at::Tensor a = at::arange(8, at::kFloat);
  const at::Tensor b = at::arange(8, at::kFloat).add(100);
  comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
    WholeSteps whole;
    Save(files_, comm, FolderAt(directory_), 3, OwnerOf(InfoOf(10)), InfoOf(10),
         {{.name = "a", .shape = {8}, .data = ElementsOf(a)},
          {.name = "b", .shape = {8}, .data = ElementsOf(b)}},
         whole);
  });
  class Swapped final : public platform::ForwardingFiles {
   public:
    absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t begin, int64_t bytes) override {
      absl::StatusOr<std::string> content = ForwardingFiles::ReadRange(path, begin, bytes);
      if (begin == 0 && bytes < *Size(path) && content.ok() && content->find("\"b\"") != std::string::npos) {
        std::swap(content->at(content->find("\"a\"") + 1), content->at(content->find("\"b\"") + 1));
        swapped = true;
      }
      return content;
    }
    bool swapped = false;
  } files;
  const at::Tensor to_a = at::zeros({8}, at::kFloat);
  const at::Tensor to_b = at::zeros({8}, at::kFloat);
  try {
    LoadAlone(files, Path(10),
              {{.name = "a", .shape = {8}, .data = ElementsOf(to_a)},
               {.name = "b", .shape = {8}, .data = ElementsOf(to_b)}});
    ADD_FAILURE() << "loaded";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank-00000.safetensors changed while it was read"));
  }
  EXPECT_TRUE(files.swapped);
}

}  // namespace
}  // namespace tandem::checkpoint
