// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shards_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

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

TEST(ShardsFileTest, AShardThatIsNoPartOfItsArrayIsRefusedByName) {
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
      WholeSteps whole;
      Save(files_, comm, FolderAt(directory_), 3, OwnerOf(InfoOf(10)), InfoOf(10),
           {{.name = "w",
             .shape = {state.numel()},
             .data = ElementsOf(state),
             .type = device::ElementKind::kFloat}},
           whole);
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

}  // namespace
}  // namespace tandem::checkpoint
