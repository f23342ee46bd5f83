// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

constexpr char kStep[] = "step-";
constexpr char kTemporary[] = ".tmp.";
constexpr int64_t kMostManifestBytes = int64_t{1} << 30;

template <typename Int>
std::optional<Int> Natural(std::string_view digits) {
  Int value = 0;
  if (digits.empty() || (digits[0] == '0' && digits.size() > 1) ||
      digits.find_first_not_of("0123456789") != digits.npos ||
      !absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &value)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::string StepName(int64_t step) { return absl::StrCat(kStep, step); }

std::string TemporaryName(int64_t step, const Owner& owner) {
  return absl::StrCat(StepName(step), kTemporary, owner.attempt, ".", owner.job);
}

std::optional<int64_t> StepOfName(std::string_view name) {
  if (!name.starts_with(kStep)) {
    return std::nullopt;
  }
  return Natural<int64_t>(name.substr(std::string_view(kStep).size()));
}

std::optional<TemporaryFolder> ParseTemporaryName(std::string_view name) {
  const size_t middle = name.find(kTemporary);
  if (middle == name.npos || !StepOfName(name.substr(0, middle)).has_value()) {
    return std::nullopt;
  }
  const std::string_view owner = name.substr(middle + std::string_view(kTemporary).size());
  const size_t dot = owner.find('.');
  const std::optional<int> attempt = Natural<int>(owner.substr(0, dot));
  if (!attempt.has_value()) {
    return std::nullopt;
  }
  return TemporaryFolder{.attempt = *attempt,
                         .job = std::string(dot == owner.npos ? "" : owner.substr(dot + 1))};
}

absl::StatusOr<std::vector<int64_t>> ListSteps(platform::Files& files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (absl::IsNotFound(names.status())) {
    return std::vector<int64_t>();
  }
  if (!names.ok()) {
    return names.status();
  }
  std::vector<int64_t> steps;
  for (const std::string& name : *names) {
    if (const std::optional<int64_t> step = StepOfName(name)) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

absl::StatusOr<Manifest> ReadFolderManifest(platform::Files& files, const std::string& path) {
  const std::string file = absl::StrCat(path, "/", kManifestName);
  TANDEM_ASSIGN_OR_RETURN(const int64_t bytes, files.Size(file));
  if (bytes > kMostManifestBytes) {  // before it is read: it may not fit in memory
    return absl::InvalidArgumentError(
        absl::StrCat(kManifestName, ": it has ", bytes, " bytes, too many for a manifest"));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string text, files.Read(file));
  absl::StatusOr<Manifest> manifest = ReadManifest(text);
  if (!manifest.ok()) {
    return manifest;
  }
  std::string name = std::filesystem::path(path).filename().string();
  if (name.empty()) {
    name = std::filesystem::path(path).parent_path().filename().string();  // "…/step-200/"
  }
  // A user may copy a folder to another name, but not to the name of another step.
  const std::optional<int64_t> step = StepOfName(name);
  if (step.has_value() && *step != manifest->info.step) {
    return absl::InvalidArgumentError(
        absl::StrCat(kManifestName, ": it belongs to step ", manifest->info.step, ", not to this folder"));
  }
  return manifest;
}

absl::Status CheckSize(platform::Files& files, const std::string& path, const ManifestFile& file) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t bytes, files.Size(absl::StrCat(path, "/", file.name)));
  if (bytes != file.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name, ": it has ", bytes, " bytes, the manifest says ", file.bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileHeader> ReadFileHeader(platform::Files& files, const std::string& path,
                                          const ManifestFile& file) {
  TANDEM_RETURN_IF_ERROR(CheckSize(files, path, file));
  const std::string name = absl::StrCat(path, "/", file.name);
  const auto of_file = [&](const absl::Status& error) {
    return absl::Status(error.code(), absl::StrCat(file.name, ": ", error.message()));
  };
  TANDEM_ASSIGN_OR_RETURN(const std::string length, files.ReadRange(name, 0, kSafetensorsLengthBytes));
  const absl::StatusOr<int64_t> bytes = SafetensorsHeaderBytes(length, file.bytes);
  if (!bytes.ok()) {
    return of_file(bytes.status());
  }
  FileHeader read;
  TANDEM_ASSIGN_OR_RETURN(read.text, files.ReadRange(name, 0, *bytes));
  absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(read.text, file.bytes);
  if (!header.ok()) {
    return of_file(header.status());
  }
  read.header = *std::move(header);
  return read;
}

absl::Status CheckHeaderUnchanged(const FileHeader& header, const std::string& file, int64_t place,
                                  std::string_view part) {
  const std::string_view rest =
      std::string_view(header.text).substr(std::min(static_cast<size_t>(place), header.text.size()));
  const size_t both = std::min(rest.size(), part.size());
  return part.substr(0, both) == rest.substr(0, both)
             ? absl::OkStatus()
             : absl::UnavailableError(absl::StrCat(file, " changed while it was read"));
}

bool IsDamage(const absl::Status& error) { return absl::IsInvalidArgument(error) || absl::IsNotFound(error); }

DigestedBytes AllOf(const ManifestFile& file) {
  return {.file = file.name, .end = file.bytes, .digest = file.digest};
}

absl::Status VerifiedBytes::Next(std::string& part, int64_t most_bytes) {
  std::string().swap(part);  // frees it before the next part is allocated
  const int64_t wanted = std::min(most_bytes, wanted_.end - read_);
  absl::StatusOr<std::string> next = files_.ReadRange(absl::StrCat(path_, "/", wanted_.file), read_, wanted);
  if (!next.ok()) {
    return absl::UnavailableError(next.status().message());
  }
  part = *std::move(next);
  read_ += static_cast<int64_t>(part.size());
  if (static_cast<int64_t>(part.size()) < wanted) {
    return absl::UnavailableError(
        absl::StrCat(wanted_.file, ": it ends at byte ", read_, ", and should have ",
                     wanted_.tensor.empty() ? "" : "at least ", wanted_.end, ", as it had before"));
  }
  digest_.Add(part);
  done_ = read_ == wanted_.end;
  if (done_ && digest_.Get() != wanted_.digest) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted_.file, ": ",
                     wanted_.tensor.empty() ? "its digest" : absl::StrCat("the digest of ", wanted_.tensor),
                     " does not match the manifest"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
