// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/info.h"
#include "fsdp/slice.h"

namespace tandem::checkpoint {

// `manifest.json` says what a checkpoint is, which files it has, and where the elements of each array are
// stored. The functions here only convert and check; they open no files.

constexpr char kManifestName[] = "manifest.json";
// This build writes version 3 and also reads version 2, whose arrays have no shapes and no slices, and whose
// names include the kind ("model.norm.weight/exp_avg"). Version 1, with one array for each unit, was never
// released.
constexpr int kManifestVersion = 3;
constexpr int kOldestManifestVersion = 2;

struct ManifestFile {
  std::string name;  // within the folder, without a path
  int64_t bytes = 0;
  std::string digest;  // XXH3-128, 32 hexadecimal digits
};

// The kinds of arrays. An array of kind kState belongs to a router and has a name of its own; an array of any
// other kind has the name of its parameter.
inline constexpr char kWeight[] = "weight";
inline constexpr char kExpAvg[] = "exp_avg";
inline constexpr char kExpAvgSq[] = "exp_avg_sq";
inline constexpr char kMomentum[] = "momentum";
inline constexpr char kState[] = "state";

// The name of the tensor that holds a piece of an array in a file: "model.norm.weight",
// "model.norm.weight/exp_avg".
std::string TensorName(const std::string& name, const std::string& kind);

// Consecutive elements of a slice of an array: [begin, begin + elements) in the row-major order of the slice.
struct ManifestPiece {
  int file = 0;       // index in files
  fsdp::Slice slice;  // empty: the whole array
  int64_t begin = 0;
  int64_t elements = 0;
  // XXH3-128 of the piece's bytes in the file, so that the piece can be verified without the rest of the
  // file. Empty if the manifest has no digest for it.
  std::string digest = {};
};

// The slices are disjoint and cover the array, and the pieces of a slice cover the slice. A file has at most
// one piece of an array.
struct ManifestArray {
  std::string name;
  std::string kind = kWeight;
  std::string dtype;  // as safetensors names it
  fsdp::Shape shape;  // of the whole array; in version 2 a single dim with the number of elements
  std::vector<ManifestPiece> pieces;  // ordered by slice, and ascending within a slice
};

inline constexpr size_t kMostSlices = 4096;  // for one array

// Whether the array can be a tensor of that shape: it has the shape, or it is of version 2 and has as many
// elements.
bool Holds(const ManifestArray& array, const fsdp::Shape& shape);

std::string ShapeText(const fsdp::Shape& shape);  // "[4, 8]"

struct Manifest {
  Info info;
  std::vector<ManifestFile> files;
  std::vector<ManifestArray> arrays;
  std::string digest;  // digest in the text that it was read from; empty if it was not read
};

// The sum over all files.
int64_t TotalBytes(const std::vector<ManifestFile>& files);

struct ManifestText {
  std::string text;
  std::string digest;  // covers the text that follows the digest in `text`
};

// Writes JSON, whose first member is the digest of all that follows.
ManifestText WriteManifest(const Manifest& manifest);

// Write and read the files and arrays without `info` and without checks, so that ranks can send each other
// their parts of a manifest. ContentsOf throws if the text was not made by ContentsText.
std::string ContentsText(const Manifest& manifest);
Manifest ContentsOf(std::string_view text);

// Returns InvalidArgument with the reason if the manifest is damaged, of an older version, or fails
// CheckCoverage. Returns Unimplemented if it is of a newer version; whether it is damaged is then unknown.
absl::StatusOr<Manifest> ReadManifest(std::string_view text);

// Checks that files have names within the folder and possible sizes (also in sum), that arrays are unique,
// and that each is covered as ManifestArray says. Returns InvalidArgument naming what is wrong. Sorts the
// pieces.
absl::Status CheckCoverage(Manifest& manifest);

}  // namespace tandem::checkpoint
