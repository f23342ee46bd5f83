// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/info.h"

namespace tandem::checkpoint {

// `manifest.json`: what a checkpoint is, which files it has, and which elements of which array lie where.
// Torch-free arithmetic on text.

constexpr char kManifestName[] = "manifest.json";
// 1: an array a unit and kind, of the unit's flat buffer ("layers.0/weights"). 2: one a parameter and kind
// (parameter_arrays.h). This build writes 2 and reads both.
constexpr int kManifestVersion = 2;
constexpr int kOldestManifestVersion = 1;

struct ManifestFile {
  std::string name;  // within the folder, no path
  int64_t bytes = 0;
  std::string digest;  // XXH3-128, 32 hexadecimal digits
};

// Elements [begin, begin + elements) of an array, in a file's tensor of the array's name.
struct ManifestPiece {
  int file = 0;  // index in files
  int64_t begin = 0;
  int64_t elements = 0;
};

struct ManifestArray {
  std::string name;
  std::string dtype;  // as safetensors names it
  int64_t elements = 0;
  std::vector<ManifestPiece> pieces;  // ascending, [0, elements) exactly once
};

struct Manifest {
  int version = kManifestVersion;
  Info info;
  std::vector<ManifestFile> files;
  std::vector<ManifestArray> arrays;
  std::string digest;  // of the text that it was read from; empty: it was not
};

struct ManifestText {
  std::string text;
  std::string digest;  // of what follows the digest in it; the text holds it
};

// JSON; its first member is the digest of all that follows.
ManifestText WriteManifest(const Manifest& manifest);

// InvalidArgument with the reason: damaged, of a newer version, or not as CheckCoverage wants it.
absl::StatusOr<Manifest> ReadManifest(std::string_view text);

// InvalidArgument, naming what is wrong, unless the files have names within the folder and sizes that files
// can have, the sum too, and every array's pieces cover it exactly once. Sorts the pieces.
absl::Status CheckCoverage(Manifest& manifest);

}  // namespace tandem::checkpoint
