// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shards_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "platform/files.h"
#include "platform/xxh3.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/elements_of.h"

namespace tandem::checkpoint {
namespace {

using testing::HasSubstr;

std::string ContentOf(const std::vector<Shard>& shards) {
  absl::StatusOr<ShardsFile> file = ShardsFile::Make(shards);
  EXPECT_TRUE(file.ok()) << file.status();
  std::string content;
  for (std::string_view part = file->Next(); !part.empty(); part = file->Next()) {
    EXPECT_LE(static_cast<int64_t>(part.size()), platform::kFilePartBytes);
    content += part;
  }
  EXPECT_EQ(file->bytes(), static_cast<int64_t>(content.size()));
  EXPECT_EQ(file->digest(), platform::Xxh3Of(content));
  return content;
}

TEST(ShardsFileTest, HoldsShardsInOrderAndType) {
  const at::Tensor floats = at::arange(5, at::kFloat);
  const at::Tensor nothing = at::empty({0}, at::kFloat);
  const at::Tensor narrow = at::arange(7, at::kBFloat16);
  const std::string content = ContentOf(
      {{.name = "a", .shape = {9}, .begin = 2, .data = ElementsOf(floats)},
       {.name = "none", .shape = {9}, .begin = 9, .data = ElementsOf(nothing)},
       {.name = "b", .shape = {7}, .data = ElementsOf(narrow), .type = device::ElementKind::kFloat}});
  const auto header = ReadSafetensorsHeader(content, static_cast<int64_t>(content.size()));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors.size(), 2u);
  for (const auto& [name, size] : {std::pair("a", 5), std::pair("b", 7)}) {
    const TensorPlace& place = header->tensors.at(name);
    EXPECT_EQ(place.dtype, "F32");
    ASSERT_EQ(place.end - place.begin, 4 * size);
    const auto* const values = reinterpret_cast<const float*>(content.data() + place.begin);
    for (int i = 0; i < size; ++i) {
      EXPECT_EQ(values[i], static_cast<float>(i));
    }
  }
}

TEST(ShardsFileTest, PartsOfALargeArrayAreThatArray) {
  const at::Tensor large = at::arange(5 * platform::kFilePartBytes / 8 + 3, at::kFloat);
  const at::Tensor doubles = large.to(at::kDouble);
  const std::string in_place =
      ContentOf({{.name = "a", .shape = {large.numel()}, .data = ElementsOf(large)}});
  EXPECT_EQ(ContentOf({{.name = "a",
                        .shape = {large.numel()},
                        .data = ElementsOf(doubles),
                        .type = device::ElementKind::kFloat}}),
            in_place);
  EXPECT_EQ(in_place.substr(in_place.size() - large.nbytes()),
            std::string(static_cast<const char*>(large.const_data_ptr()), large.nbytes()));
}

TEST(ShardsFileTest, WeightsAndStatesHaveDigestsOfTheirOwn) {
  const at::Tensor large = at::arange(5 * platform::kFilePartBytes / 8 + 3, at::kFloat);
  const at::Tensor small = at::arange(5, at::kFloat);
  const at::Tensor nothing = at::empty({0}, at::kFloat);
  const std::vector<Shard> shards = {{.name = "a", .shape = {large.numel()}, .data = ElementsOf(large)},
                                     {.name = "a", .kind = kExpAvg, .shape = {5}, .data = ElementsOf(small)},
                                     {.name = "none", .shape = {5}, .begin = 5, .data = ElementsOf(nothing)},
                                     {.name = "b", .kind = kState, .shape = {5}, .data = ElementsOf(small)}};
  absl::StatusOr<ShardsFile> file = ShardsFile::Make(shards);
  ASSERT_TRUE(file.ok()) << file.status();
  while (!file->Next().empty()) {
  }
  const auto digest_of = [](const at::Tensor& data) {
    return platform::Xxh3Of({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
  };
  EXPECT_EQ(file->shard_digests(), (std::vector<std::string>{digest_of(large), "", "", digest_of(small)}));
}

TEST(ShardsFileTest, ShardOutsideItsArrayIsRefusedByName) {
  const at::Tensor four = at::zeros({4});
  const std::vector<Shard> refused = {{.name = "a", .shape = {6}, .begin = 3, .data = ElementsOf(four)},
                                      {.name = "a", .shape = {6}, .begin = -1, .data = ElementsOf(four)}};
  for (const Shard& shard : refused) {
    EXPECT_THAT(ShardsFile::Make({shard}).status().message(),
                HasSubstr("array a: its shard is not a part of it"))
        << shard.begin;
  }
}

// In bytes; 0: the kernel does not say.
int64_t StatusNumber(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) {
      return std::stoll(line.substr(key.size() + 1)) << 10;
    }
  }
  return 0;
}

class SaveMemoryTest : public CheckpointTest {};

// A rank's state is 12 bytes a parameter; a copy of it more may not fit in the host's memory. `tandem plan`
// says that a part of a file is all that it takes (MemoryPlan::checkpoint_bytes).
TEST_F(SaveMemoryTest, SavesAndLoadsHoldOnePart) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "its allocator keeps what was given back";
#endif
  constexpr int64_t kSlack = 8 << 20;  // names, the manifest, what allocators keep
  const at::Tensor state = at::ones({12 * platform::kFilePartBytes / 8}, at::kDouble);  // in parts of its own
  const auto growth = [](const std::function<void()>& work) {
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak is what there is
    const int64_t before = StatusNumber("VmRSS");
    work();
    return StatusNumber("VmHWM") - before;
  };
  const int64_t saving = growth([&] {
    comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
      SaveShards(files_, comm, directory_, 10,
                 {{.name = "w",
                   .shape = {state.numel()},
                   .data = ElementsOf(state),
                   .type = device::ElementKind::kFloat}});
    });
  });
  EXPECT_LE(saving, platform::kFilePartBytes + kSlack);
  const at::Tensor loaded = at::zeros({state.numel()});
  const int64_t loading = growth([&] {
    LoadAlone(files_, Path(10), {{.name = "w", .shape = {state.numel()}, .data = ElementsOf(loaded)}});
  });
  EXPECT_LE(loading, platform::kFilePartBytes + kSlack);
  EXPECT_TRUE(at::equal(loaded, at::ones({state.numel()})));
}

using testing::HasSubstr;

// What rank `rank` sends that has these shards in its file.
std::string SentBy(int rank, const std::vector<Shard>& shards) {
  return ContentsText(
      {.files = {{.name = absl::StrCat("file-", rank), .bytes = 10 + rank, .digest = "digest"}},
       .arrays = ArraysOf(shards)});
}

TEST(ContributionTest, PiecesLieInTheirRanksFiles) {
  const at::Tensor three = at::zeros({3});
  const at::Tensor nothing = at::zeros({0});
  Manifest manifest;
  const absl::Status collected =
      Collect({SentBy(0, {{.name = "a", .shape = {3}, .begin = 3, .data = ElementsOf(nothing)},
                          {.name = "b", .shape = {6}, .begin = 3, .data = ElementsOf(three)}}),
               SentBy(1, {{.name = "a", .shape = {3}, .data = ElementsOf(three)},
                          {.name = "b", .shape = {6}, .data = ElementsOf(three)}})},
              manifest);
  ASSERT_TRUE(collected.ok()) << collected;
  ASSERT_EQ(manifest.files.size(), 2u);
  EXPECT_EQ(manifest.files[1].name, "file-1");
  EXPECT_EQ(manifest.files[1].bytes, 11);
  ASSERT_EQ(manifest.arrays.size(), 2u);
  ASSERT_EQ(manifest.arrays[0].pieces.size(), 1u) << "rank 0 holds nothing of it";
  EXPECT_EQ(manifest.arrays[0].pieces[0].file, 1);
  ASSERT_EQ(manifest.arrays[1].pieces.size(), 2u);
  EXPECT_EQ(manifest.arrays[1].pieces[0].file, 1) << "they are in the order of the array";
  EXPECT_EQ(manifest.arrays[1].pieces[1].file, 0);
  EXPECT_EQ(manifest.arrays[1].pieces[1].begin, 3);
}

TEST(ContributionTest, DifferingArrayIsNamedWithItsRank) {
  const at::Tensor floats = at::zeros({3});
  const at::Tensor doubles = at::zeros({3}, at::kDouble);
  const std::string first = SentBy(0, {{.name = "a", .shape = {6}, .data = ElementsOf(floats)}});
  for (const Shard& other : {Shard{.name = "a", .shape = {6}, .begin = 3, .data = ElementsOf(doubles)},
                             Shard{.name = "a", .shape = {7}, .begin = 3, .data = ElementsOf(floats)}}) {
    Manifest manifest;
    EXPECT_THAT(Collect({first, SentBy(1, {other})}, manifest).message(),
                HasSubstr("array a: rank 1 has another type or shape than the ranks before it"));
  }
}

TEST(ContributionTest, IncompleteArrayIsNamed) {
  const at::Tensor three = at::zeros({3});
  Manifest manifest;
  EXPECT_THAT(
      Collect({SentBy(0, {{.name = "a", .shape = {6}, .data = ElementsOf(three)}})}, manifest).message(),
      HasSubstr("array a has 6 elements, its pieces cover 3"));
}

}  // namespace
}  // namespace tandem::checkpoint
