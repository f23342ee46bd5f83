// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/saved_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "checkpoint/step_stream.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

absl::Status OfFile(const ManifestFile& file, const absl::Status& error) {
  return absl::Status(error.code(), absl::StrCat(file.name, ": ", error.message()));
}

// The header of a file, as the bytes that it begins with.
absl::StatusOr<std::string> ReadBeginning(platform::Files& files, const std::string& path,
                                          const ManifestFile& file) {
  TANDEM_RETURN_IF_ERROR(CheckSize(files, path, file));
  const std::string name = absl::StrCat(path, "/", file.name);
  TANDEM_ASSIGN_OR_RETURN(const std::string length, files.ReadRange(name, 0, kSafetensorsLengthBytes));
  const absl::StatusOr<int64_t> bytes = SafetensorsHeaderBytes(length, file.bytes);
  if (!bytes.ok()) {
    return OfFile(file, bytes.status());
  }
  return files.ReadRange(name, 0, *bytes);
}

}  // namespace

absl::StatusOr<SavedStep> SavedStep::Open(platform::Files& files, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest, ReadFolderManifest(files, path));
  SavedStep step(files, path, std::move(manifest));
  for (const ManifestFile& file : step.manifest_.files) {
    TANDEM_ASSIGN_OR_RETURN(std::string beginning, ReadBeginning(files, path, file));
    absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(beginning, file.bytes);
    if (!header.ok()) {
      return OfFile(file, header.status());
    }
    step.beginnings_.push_back(std::move(beginning));
    step.headers_.push_back(*std::move(header));
  }
  for (size_t i = 0; i < step.manifest_.arrays.size(); ++i) {
    const ManifestArray& array = step.manifest_.arrays[i];
    const std::string name = TensorName(array.name, array.kind);
    step.arrays_.emplace(name, i);
    for (const ManifestPiece& piece : array.pieces) {
      const auto& tensors = step.headers_[static_cast<size_t>(piece.file)].tensors;
      const auto tensor = tensors.find(name);
      if (tensor == tensors.end() || tensor->second.dtype != array.dtype ||
          tensor->second.end - tensor->second.begin != piece.elements * BytesOfDtype(array.dtype)) {
        return absl::InvalidArgumentError(
            absl::StrCat(step.manifest_.files[static_cast<size_t>(piece.file)].name, ": array ", name,
                         " is not there as the manifest says"));
      }
    }
  }
  return step;
}

const ManifestArray* SavedStep::Find(const std::string& name) const {
  const auto found = arrays_.find(name);
  return found == arrays_.end() ? nullptr : &manifest_.arrays[found->second];
}

absl::Status SavedStep::Verify() const { return StreamStep(*files_, *this, /*wanted=*/{}, /*take=*/{}); }

DigestedBytes SavedStep::BytesOf(const ManifestArray& array, const ManifestPiece& piece) const {
  const auto file = static_cast<size_t>(piece.file);
  const std::string name = TensorName(array.name, array.kind);
  const TensorPlace& place = headers_[file].tensors.at(name);
  return {.file = manifest_.files[file].name,
          .tensor = name,
          .begin = place.begin,
          .end = place.end,
          .digest = piece.digest};
}

std::vector<SavedStep::StoredRun> SavedStep::RunsOf(const ManifestArray& array, const ManifestPiece& piece,
                                                    fsdp::Range of) const {
  const int64_t tensor =
      headers_[static_cast<size_t>(piece.file)].tensors.at(TensorName(array.name, array.kind)).begin;
  std::vector<StoredRun> runs;
  for (const fsdp::CommonRun& run :
       fsdp::CommonRuns(array.shape, piece.slice, {.begin = piece.begin, .end = piece.begin + piece.elements},
                        /*b=*/{}, of)) {
    runs.push_back({.begin = tensor + (run.a - piece.begin) * BytesOfDtype(array.dtype),
                    .first = run.b,
                    .elements = run.elements});
  }
  return runs;
}

absl::StatusOr<std::string> SavedStep::Read(const ManifestArray& array, int64_t begin, int64_t count) const {
  const int64_t size = BytesOfDtype(array.dtype);
  std::string bytes(static_cast<size_t>(count * size), '\0');
  for (const ManifestPiece& piece : array.pieces) {
    const std::string& name = manifest_.files[static_cast<size_t>(piece.file)].name;
    for (const StoredRun& run : RunsOf(array, piece, {.begin = begin, .end = begin + count})) {
      TANDEM_ASSIGN_OR_RETURN(const std::string part, files_->ReadRange(absl::StrCat(path_, "/", name),
                                                                        run.begin, run.elements * size));
      if (static_cast<int64_t>(part.size()) != run.elements * size) {
        return absl::UnavailableError(absl::StrCat(name, " has become shorter while it was read"));
      }
      part.copy(bytes.data() + (run.first - begin) * size, part.size());
    }
  }
  return bytes;
}

}  // namespace tandem::checkpoint
