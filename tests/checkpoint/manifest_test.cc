// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace tandem::checkpoint {
namespace {

using testing::HasSubstr;

// Of one file and one array of four elements in two pieces.
Manifest WholeManifest() {
  return {.files = {{.name = "file", .bytes = 32, .digest = "digest"}},
          .arrays = {
              {.name = "a",
               .dtype = "F64",
               .elements = 4,
               .pieces = {{.file = 0, .begin = 3, .elements = 1}, {.file = 0, .begin = 0, .elements = 3}}}}};
}

std::string CoverageError(Manifest manifest) { return std::string(CheckCoverage(manifest).message()); }

TEST(ManifestTest, WhatAJobBeganWithIsReadAgain) {
  Manifest manifest = WholeManifest();
  EXPECT_EQ(ReadManifest(WriteManifest(manifest).text)->info.origin, std::nullopt);
  manifest.info.origin = {.path = "/models/llama", .digest = "0123"};
  EXPECT_EQ(ReadManifest(WriteManifest(manifest).text)->info.origin, manifest.info.origin);
}

TEST(CheckCoverageTest, PiecesComeInAnyOrderAndAreSorted) {
  Manifest manifest = WholeManifest();
  ASSERT_TRUE(CheckCoverage(manifest).ok());
  EXPECT_EQ(manifest.arrays[0].pieces[0].begin, 0);
}

// A manifest that somebody else has written must not name what lies outside of its folder.
TEST(CheckCoverageTest, OnlyNamesWithinTheFolderAreFiles) {
  for (const std::string name : {"", ".", "..", "../file", "sub/file", "/etc/passwd", ".hidden"}) {
    Manifest manifest = WholeManifest();
    manifest.files[0].name = name;
    EXPECT_EQ(CoverageError(manifest),
              "manifest.json: '" + name + "' is not the name of a file in its folder");
  }
}

TEST(CheckCoverageTest, EveryArrayIsCoveredExactlyOnce) {
  const auto error_of = [](std::vector<ManifestPiece> pieces, int64_t elements = 4) {
    Manifest manifest = WholeManifest();
    manifest.arrays[0].pieces = std::move(pieces);
    manifest.arrays[0].elements = elements;
    return CoverageError(manifest);
  };
  EXPECT_THAT(error_of({{.elements = 3}}), HasSubstr("array a has 4 elements, its pieces cover 3"));
  EXPECT_THAT(error_of({{.elements = 3}, {.begin = 3, .elements = 2}}), HasSubstr("its pieces cover 5"));
  EXPECT_THAT(error_of({{.elements = 3}, {.begin = 2, .elements = 2}}),
              HasSubstr("array a has a piece at element 2 where one must begin at 3"));
  EXPECT_THAT(error_of({{.elements = 0}, {.elements = 4}}), HasSubstr("a piece at element 0"));
  EXPECT_THAT(error_of({{.elements = -4}}, -4), HasSubstr("a piece at element 0"));
  EXPECT_THAT(error_of({{.file = 1, .elements = 4}}), HasSubstr("lies in file 1, which is not listed"));
  EXPECT_THAT(error_of({{.file = -1, .elements = 4}}), HasSubstr("lies in file -1, which is not listed"));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(error_of({{.elements = kMost}, {.begin = kMost, .elements = 1}}), HasSubstr("2^63 elements"));
}

}  // namespace
}  // namespace tandem::checkpoint
