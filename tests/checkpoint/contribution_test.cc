// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/contribution.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/checkpoint/elements_of.h"

namespace tandem::checkpoint {
namespace {

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
