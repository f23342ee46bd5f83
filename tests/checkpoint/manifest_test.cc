// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "platform/xxh3.h"

namespace tandem::checkpoint {
namespace {

using testing::HasSubstr;

// Of two files and one array of four elements in two pieces.
Manifest WholeManifest() {
  return {.files = {{.name = "file", .bytes = 24, .digest = "digest"}, {.name = "other", .bytes = 8}},
          .arrays = {{.name = "a",
                      .dtype = "F64",
                      .shape = {2, 2},
                      .pieces = {{.file = 1, .begin = 3, .elements = 1}, {.file = 0, .elements = 3}}}}};
}

std::string Golden(const std::string& name) {
  std::ifstream file(std::string(GOLDEN_DIRECTORY) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string CoverageError(Manifest manifest) { return std::string(CheckCoverage(manifest).message()); }

TEST(ManifestTest, WhatAJobBeganWithIsReadAgain) {
  Manifest manifest = WholeManifest();
  EXPECT_EQ(ReadManifest(WriteManifest(manifest).text)->info.origin, std::nullopt);
  manifest.info.origin = {.path = "/models/llama", .digest = "0123"};
  EXPECT_EQ(ReadManifest(WriteManifest(manifest).text)->info.origin, manifest.info.origin);
}

TEST(ManifestTest, AStepWithoutAPendingReportHasNone) {
  EXPECT_EQ(ReadManifest(WriteManifest(WholeManifest()).text)->info.pending_report, "");
}

TEST(ManifestTest, APieceMayHaveADigest) {
  Manifest manifest = WholeManifest();
  manifest.arrays[0].pieces[0].digest = "of its bytes";
  const absl::StatusOr<Manifest> read = ReadManifest(WriteManifest(manifest).text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->arrays[0].pieces[0].digest, "") << "sorted, this is the other one";
  EXPECT_EQ(read->arrays[0].pieces[1].digest, "of its bytes");
  EXPECT_EQ(ContentsOf(ContentsText(manifest)).arrays[0].pieces[0].digest, "of its bytes");
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
    manifest.arrays[0].shape = {elements};
    return CoverageError(manifest);
  };
  EXPECT_EQ(error_of({{.elements = 4}}), "");
  EXPECT_THAT(error_of({{.elements = 3}}), HasSubstr("array a has 4 elements, its pieces cover 3"));
  EXPECT_THAT(error_of({{.elements = 3}, {.file = 1, .begin = 3, .elements = 2}}),
              HasSubstr("its pieces cover 5"));
  EXPECT_THAT(error_of({{.elements = 3}, {.file = 1, .begin = 2, .elements = 2}}),
              HasSubstr("array a has a piece at element 2 where one must begin at 3"));
  EXPECT_THAT(error_of({{.elements = 0}, {.file = 1, .elements = 4}}), HasSubstr("a piece at element 0"));
  EXPECT_THAT(error_of({{.elements = -4}}, -4), HasSubstr("array a cannot have the shape [-4]"));
  EXPECT_THAT(error_of({{.file = 2, .elements = 4}}), HasSubstr("lies in file 2, which is not listed"));
  EXPECT_THAT(error_of({{.file = -1, .elements = 4}}), HasSubstr("lies in file -1, which is not listed"));
  EXPECT_THAT(error_of({{.elements = 3}, {.begin = 3, .elements = 1}}),
              HasSubstr("has two pieces in file 0"));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(error_of({{.elements = kMost}, {.file = 1, .begin = kMost, .elements = 1}}),
              HasSubstr("2^63 elements"));
}

TEST(CheckCoverageTest, SlicesAreDisjointAndCoverTheArray) {
  const auto error_of = [](const std::vector<fsdp::Slice>& slices) {
    Manifest manifest = WholeManifest();
    manifest.arrays[0].shape = {2, 3};
    manifest.arrays[0].pieces.clear();
    for (size_t i = 0; i < slices.size(); ++i) {
      manifest.arrays[0].pieces.push_back({.file = static_cast<int>(i),
                                           .slice = slices[i],
                                           .elements = fsdp::NumElements({2, 3}, slices[i])});
    }
    return CoverageError(manifest);
  };
  EXPECT_EQ(error_of({{{0, 2}, {1, 3}}, {{0, 2}, {0, 1}}}), "");
  EXPECT_THAT(error_of({{{0, 2}, {0, 2}}, {{0, 2}, {1, 3}}}), HasSubstr("array a has slices that overlap"));
  EXPECT_THAT(error_of({{{0, 2}, {0, 1}}, {{0, 2}, {2, 3}}}),
              HasSubstr("a has 6 elements, its pieces cover 4"));
  EXPECT_THAT(error_of({{{0, 2}, {0, 3}}, {}}), HasSubstr("array a has slices that overlap"));
  EXPECT_THAT(error_of({{{0, 2}, {0, 4}}}), HasSubstr("a slice that is not within its shape [2, 3]"));
}

TEST(CheckCoverageTest, ArraysAreUniqueAndOfKnownKinds) {
  Manifest twice = WholeManifest();
  twice.arrays.push_back(twice.arrays[0]);
  EXPECT_THAT(CoverageError(twice), HasSubstr("array a appears twice"));
  twice.arrays[1].kind = kExpAvg;
  EXPECT_EQ(CoverageError(twice), "");
  twice.arrays[1].kind = "velocity";
  EXPECT_THAT(CoverageError(twice),
              HasSubstr("array a/velocity is of kind velocity, which is none of weight, exp_avg"));
}

// What this build writes. A change of this text is a new version.
TEST(ManifestTest, Version3IsWrittenAsTheGoldenText) {
  Manifest manifest{
      .info = {.step = 20,
               .attempt = 2,
               .job = "0123456789ab",
               .spec_digest = "spec",
               .parameters_digest = "parameters",
               .seed = 7,
               .data_digest = "names",
               .data_content_digest = "contents",
               .model = R"({"model_type": "llama"})",
               .global_batch_size = 4,
               .sequence_length = 16,
               .skipped_steps = 1,
               .origin = Origin{.path = "/models/llama", .digest = "0123"},
               .pending_report = R"({"step": "20", "loss": 2.5})"},
      .files = {{.name = "rank-00000.safetensors", .bytes = 304, .digest = "first"},
                {.name = "rank-00001.safetensors", .bytes = 280, .digest = "second"}},
      .arrays = {{.name = "model.norm.weight",
                  .dtype = "F32",
                  .shape = {8},
                  .pieces = {{.file = 0, .elements = 5}, {.file = 1, .begin = 5, .elements = 3}}},
                 {.name = "model.layers.0.mlp.down_proj.weight",
                  .kind = kExpAvgSq,
                  .dtype = "F32",
                  .shape = {4, 6},
                  .pieces = {{.file = 0, .slice = {{0, 4}, {0, 3}}, .elements = 12},
                             {.file = 1, .slice = {{0, 4}, {3, 6}}, .elements = 12}}},
                 {.name = "model.layers.0.mlp.gate.e_score_correction_bias",
                  .kind = kState,
                  .dtype = "F32",
                  .shape = {4},
                  .pieces = {{.file = 0, .elements = 4}}}}};
  EXPECT_EQ(WriteManifest(manifest).text, Golden("manifest_3.json"));
  const absl::StatusOr<Manifest> read = ReadManifest(Golden("manifest_3.json"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WriteManifest(*read).text, Golden("manifest_3.json"));
  EXPECT_EQ(read->arrays[1].pieces[1].slice, (fsdp::Slice{{0, 4}, {3, 6}}));
  EXPECT_EQ(read->info.pending_report, R"({"step":"20","loss":2.5})");
}

TEST(ManifestTest, GradientNormsKeepTheirBits) {
  Manifest manifest = WholeManifest();
  manifest.info.norms = {{.step = 7, .norm = 0.1 + 0.2}, {.step = 9, .norm = 1e-300}};
  const absl::StatusOr<Manifest> read = ReadManifest(WriteManifest(manifest).text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->info.norms, manifest.info.norms);
}

// A checkpoint of the build of 2026-11-28 that was the last to write version 2.
TEST(ManifestTest, Version2IsReadAsWholeSlices) {
  const absl::StatusOr<Manifest> manifest = ReadManifest(Golden("version_2/step-2/manifest.json"));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->info.step, 2);
  EXPECT_EQ(manifest->info.parameters_digest, "");
  const auto array = [&](const std::string& name, const std::string& kind) {
    for (const ManifestArray& each : manifest->arrays) {
      if (each.name == name && each.kind == kind) {
        return each;
      }
    }
    return ManifestArray();
  };
  for (const char* const kind : {kWeight, kExpAvg, kExpAvgSq}) {
    const ManifestArray embedding = array("model.embed_tokens.weight", kind);
    EXPECT_EQ(embedding.shape, (fsdp::Shape{2048}));
    ASSERT_EQ(embedding.pieces.size(), 2u);
    EXPECT_EQ(embedding.pieces[1].begin, 1024);
    EXPECT_TRUE(embedding.pieces[1].slice.empty());
    EXPECT_TRUE(Holds(embedding, {256, 8}));
    EXPECT_FALSE(Holds(embedding, {256, 9}));
  }
  EXPECT_EQ(manifest->arrays.size(), 33u);
}

TEST(ManifestTest, StatesOfVersion2AreKnownByTheirNames) {
  const std::string text =
      absl::StrReplaceAll(Golden("version_2/step-2/manifest.json"),
                          {{"model.norm.weight\"", "model.layers.0.mlp.gate.e_score_correction_bias\""}});
  const size_t behind = text.find("\",") + 2;
  const absl::StatusOr<Manifest> manifest =
      ReadManifest("{\"xxh3_128\": \"" + platform::Xxh3Of(text.substr(behind)) + "\"," + text.substr(behind));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  int states = 0;
  for (const ManifestArray& array : manifest->arrays) {
    states += array.kind == kState ? 1 : 0;
  }
  EXPECT_EQ(states, 1);
}

TEST(ManifestTest, OtherVersionsAreRefusedByName) {
  const auto refusal = [](int version) {
    std::string text = WriteManifest(WholeManifest()).text;
    text.replace(text.find("\"version\": 3"), 12, absl::StrCat("\"version\": ", version));
    const size_t behind = text.find("\",") + 2;
    return ReadManifest("{\"xxh3_128\": \"" + platform::Xxh3Of(text.substr(behind)) + "\"," +
                        text.substr(behind))
        .status();
  };
  EXPECT_EQ(refusal(3), absl::OkStatus());
  EXPECT_EQ(refusal(4).code(), absl::StatusCode::kUnimplemented) << "it may be whole";
  EXPECT_EQ(
      refusal(4).message(),
      "manifest.json: it is of version 4, this build reads versions 2 to 3; use the build that wrote it or "
      "a newer one");
  EXPECT_EQ(refusal(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      refusal(1).message(),
      "manifest.json: it is of version 1, this build reads versions 2 to 3; resume from it once with a build "
      "that reads it and writes version 2");
}

}  // namespace
}  // namespace tandem::checkpoint
