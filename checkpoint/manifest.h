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

// `manifest.json`: what a checkpoint is, which files it has, and which elements of which array lie where.
// Torch-free arithmetic on text.

constexpr char kManifestName[] = "manifest.json";
// This build writes 3 and reads 2 as well, whose arrays have no shapes and are whole: it gives a name and a
// kind as one ("model.norm.weight/exp_avg"). Version 1, of no release, had an array a unit.
constexpr int kManifestVersion = 3;
constexpr int kOldestManifestVersion = 2;

struct ManifestFile {
  std::string name;  // within the folder, no path
  int64_t bytes = 0;
  std::string digest;  // XXH3-128, 32 hexadecimal digits
};

// What an array is of the parameter whose name it has. A state is a router's, and has a name of its own.
inline constexpr char kWeight[] = "weight";
inline constexpr char kExpAvg[] = "exp_avg";
inline constexpr char kExpAvgSq[] = "exp_avg_sq";
inline constexpr char kMomentum[] = "momentum";
inline constexpr char kState[] = "state";

// The tensor of a file that holds a piece of such an array: "model.norm.weight", "model.norm.weight/exp_avg".
std::string TensorName(const std::string& name, const std::string& kind);

// Elements [begin, begin + elements) of a slice of an array, which the slice's row-major order counts.
struct ManifestPiece {
  int file = 0;       // index in files
  fsdp::Slice slice;  // no ranges: the whole array
  int64_t begin = 0;
  int64_t elements = 0;
  // XXH3-128 of their bytes in the file, for whoever reads them alone. Empty: the manifest does not say it.
  std::string digest = {};
};

// The slices are disjoint and cover the array, and the pieces of each cover it; a file has at most one piece.
struct ManifestArray {
  std::string name;
  std::string kind = kWeight;
  std::string dtype;                  // as safetensors names it
  fsdp::Shape shape;                  // of the whole; of version 2 its number of elements
  std::vector<ManifestPiece> pieces;  // by slice, those of one ascending
};

inline constexpr size_t kMostSlices = 4096;  // of an array

// Whether it holds the elements of a tensor of that shape: it has the shape, or is of version 2 and as large.
bool Holds(const ManifestArray& array, const fsdp::Shape& shape);

std::string ShapeText(const fsdp::Shape& shape);  // "[4, 8]"

struct Manifest {
  Info info;
  std::vector<ManifestFile> files;
  std::vector<ManifestArray> arrays;
  std::string digest;  // of the text that it was read from; empty: it was not
};

// Of all of its files.
int64_t TotalBytes(const std::vector<ManifestFile>& files);

struct ManifestText {
  std::string text;
  std::string digest;  // of what follows the digest in it; the text holds it
};

// JSON; its first member is the digest of all that follows.
ManifestText WriteManifest(const Manifest& manifest);

// Its files and arrays alone, of which nothing is checked: what a rank knows of a checkpoint. ContentsOf
// throws where the text is none of ContentsText.
std::string ContentsText(const Manifest& manifest);
Manifest ContentsOf(std::string_view text);

// InvalidArgument with the reason: damaged, of an older version, or not as CheckCoverage wants it.
// Unimplemented: of a newer version, which says nothing about damage.
absl::StatusOr<Manifest> ReadManifest(std::string_view text);

// InvalidArgument, naming what is wrong, unless the files have names within the folder and sizes that files
// can have, the sum too, arrays are there once, and each is covered as ManifestArray says. Sorts the pieces.
absl::Status CheckCoverage(Manifest& manifest);

}  // namespace tandem::checkpoint
