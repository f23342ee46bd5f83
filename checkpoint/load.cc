// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"

namespace tandem::checkpoint {
namespace {

[[noreturn]] void Fail(const std::string& path, absl::string_view reason) {
  throw CheckpointError(absl::StrCat("checkpoint ", path, ": ", reason));
}

// Elements of one file's tensor that go into one shard.
struct Copy {
  const Shard* shard = nullptr;
  const ManifestPiece* piece = nullptr;
  int64_t begin = 0;  // of the array
  int64_t end = 0;
};

const ManifestArray& FindArray(const std::string& path,
                               const std::map<std::string, const ManifestArray*>& arrays,
                               const Shard& shard) {
  const auto found = arrays.find(shard.name);
  if (found == arrays.end()) {
    Fail(path, absl::StrCat("it has no array ", shard.name,
                            "; a unit that was frozen when it was saved has weights only: freeze it here too "
                            "(training.frozen), or start from step 1"));
  }
  const ManifestArray& array = *found->second;
  if (array.elements != shard.elements) {
    Fail(path, absl::StrCat("array ", shard.name, " has ", array.elements, " elements there, ",
                            shard.elements, " here"));
  }
  const std::string dtype = SafetensorsDtype(shard.data->scalar_type());
  if (array.dtype != dtype) {
    Fail(path, absl::StrCat("array ", shard.name, " is of type ", array.dtype, " there, ", dtype, " here"));
  }
  return array;
}

void CopyElements(const std::string& path, const ManifestFile& file, const SafetensorsFile& content,
                  const Copy& copy) {
  const auto tensor = content.tensors.find(copy.shard->name);
  const auto bytes = static_cast<int64_t>(copy.shard->data->itemsize());
  if (tensor == content.tensors.end() ||
      tensor->second.dtype != SafetensorsDtype(copy.shard->data->scalar_type()) ||
      static_cast<int64_t>(tensor->second.data.size()) != copy.piece->elements * bytes) {
    Fail(path, absl::StrCat(file.name, ": array ", copy.shard->name, " is not there as the manifest says"));
  }
  std::memcpy(
      static_cast<char*>(copy.shard->data->mutable_data_ptr()) + (copy.begin - copy.shard->begin) * bytes,
      tensor->second.data.data() + (copy.begin - copy.piece->begin) * bytes,
      static_cast<size_t>((copy.end - copy.begin) * bytes));
}

// Weights have their parameter's name alone; in version 1, their unit's with a suffix.
bool IsOfWeights(const ManifestArray& array) {
  return !absl::StrContains(array.name, "/") || absl::EndsWith(array.name, "/weights");
}

Found FoundAt(const std::string& path, const Manifest& manifest) {
  Found found{.path = path, .info = manifest.info, .version = manifest.version};
  const auto weights = std::find_if(manifest.arrays.begin(), manifest.arrays.end(), IsOfWeights);
  if (weights != manifest.arrays.end()) {
    found.weights_dtype = weights->dtype;
  }
  for (const ManifestArray& array : manifest.arrays) {
    if (!absl::StrContains(array.name, "/") && !absl::EndsWith(array.name, ".weight")) {
      found.states.push_back(array.name);
    }
  }
  std::sort(found.states.begin(), found.states.end());
  return found;
}

}  // namespace

Found FindNewest(platform::Files& files, const std::string& directory,
                 const std::function<void(const std::string& path, const std::string& reason)>& skipped) {
  const absl::StatusOr<std::vector<int64_t>> steps = ListSteps(files, directory);
  if (!steps.ok()) {
    throw CheckpointError("checkpoint: " + std::string(steps.status().message()));
  }
  for (const int64_t step : *steps) {
    const std::string path = absl::StrCat(directory, "/", StepName(step));
    const absl::StatusOr<Manifest> manifest = Verify(files, path);
    if (manifest.ok()) {
      return FoundAt(path, *manifest);
    }
    skipped(path, std::string(manifest.status().message()));
  }
  return {};
}

Found Inspect(platform::Files& files, const std::string& path) {
  const absl::StatusOr<Manifest> manifest = ReadFolderManifest(files, path);
  if (!manifest.ok()) {
    Fail(path, manifest.status().message());
  }
  return FoundAt(path, *manifest);
}

void Load(platform::Files& files, const std::string& path, const std::vector<Shard>& parameter_shards,
          const std::vector<Shard>& unit_shards) {
  const absl::StatusOr<Manifest> manifest = ReadFolderManifest(files, path);
  if (!manifest.ok()) {
    Fail(path, manifest.status().message());
  }
  if (manifest->version == 1 && unit_shards.empty() && !parameter_shards.empty()) {
    Fail(path, "it is of version 1, which has an array a unit, and what is to be loaded has one a parameter");
  }
  const std::vector<Shard>& shards = manifest->version == 1 ? unit_shards : parameter_shards;
  std::map<std::string, const ManifestArray*> arrays;
  for (const ManifestArray& array : manifest->arrays) {
    arrays.emplace(array.name, &array);
  }

  std::map<int, std::vector<Copy>> by_file;
  for (const Shard& shard : shards) {
    const ManifestArray& array = FindArray(path, arrays, shard);
    const int64_t shard_end = shard.begin + shard.data->numel();
    if (shard.begin < 0 || shard_end > shard.elements || !shard.data->is_contiguous()) {
      Fail(path, "array " + shard.name + ": the shard is not a contiguous part of it");
    }
    for (const ManifestPiece& piece : array.pieces) {
      const int64_t begin = std::max(piece.begin, shard.begin);
      const int64_t end = std::min(piece.begin + piece.elements, shard_end);
      if (begin < end) {
        by_file[piece.file].push_back({.shard = &shard, .piece = &piece, .begin = begin, .end = end});
      }
    }
  }
  // The file of a rank that owned nothing: no shard needs it, but it must not be damaged either.
  std::vector<bool> has_pieces(manifest->files.size());
  for (const ManifestArray& array : manifest->arrays) {
    for (const ManifestPiece& piece : array.pieces) {
      has_pieces[static_cast<size_t>(piece.file)] = true;
    }
  }
  for (size_t file = 0; file < has_pieces.size(); ++file) {
    if (!has_pieces[file]) {
      by_file[static_cast<int>(file)];
    }
  }
  // One file in memory at a time.
  for (const auto& [index, copies] : by_file) {
    const ManifestFile& file = manifest->files[static_cast<size_t>(index)];
    const absl::StatusOr<std::string> content = ReadVerified(files, path, file);
    if (!content.ok()) {
      Fail(path, content.status().message());
    }
    const absl::StatusOr<SafetensorsFile> tensors = ReadSafetensors(*content);
    if (!tensors.ok()) {
      Fail(path, absl::StrCat(file.name, ": ", tensors.status().message()));
    }
    for (const Copy& copy : copies) {
      CopyElements(path, file, *tensors, copy);
    }
  }
}

std::string SafetensorsDtype(c10::ScalarType type) {
  using enum c10::ScalarType;
  switch (type) {
    case Float:
      return "F32";
    case Double:
      return "F64";
    case BFloat16:
      return "BF16";
    case Long:
      return "I64";
    case Byte:
      return "U8";
    default:
      throw CheckpointError(std::string("checkpoint: arrays of ") + c10::toString(type) + " cannot be saved");
  }
}

}  // namespace tandem::checkpoint
