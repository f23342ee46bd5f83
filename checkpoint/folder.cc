#include "checkpoint/folder.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tandem::checkpoint {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp.";

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

std::string StepName(int64_t step) { return absl::StrCat("step-", step); }

std::string TemporaryName(int64_t step, int attempt) { return absl::StrCat("step-", step, ".tmp.", attempt); }

std::optional<int64_t> StepOfName(std::string_view name) {
  if (name.substr(0, kStep.size()) != kStep) return std::nullopt;
  return Natural<int64_t>(name.substr(kStep.size()));
}

std::optional<int> AttemptOfTemporary(std::string_view name) {
  const size_t dot = name.find(kTemporary);
  if (dot == name.npos || !StepOfName(name.substr(0, dot)).has_value()) return std::nullopt;
  return Natural<int>(name.substr(dot + kTemporary.size()));
}

absl::StatusOr<std::vector<int64_t>> ListSteps(platform::Files& files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (absl::IsNotFound(names.status())) return std::vector<int64_t>();
  if (!names.ok()) return names.status();
  std::vector<int64_t> steps;
  for (const std::string& name : *names) {
    if (const std::optional<int64_t> step = StepOfName(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

absl::StatusOr<Manifest> ReadFolderManifest(platform::Files& files, const std::string& path) {
  const absl::StatusOr<std::string> text = files.Read(absl::StrCat(path, "/", kManifestName));
  if (!text.ok()) return text.status();
  absl::StatusOr<Manifest> manifest = ReadManifest(*text);
  if (!manifest.ok()) return manifest;
  std::string name = std::filesystem::path(path).filename().string();
  if (name.empty()) name = std::filesystem::path(path).parent_path().filename().string();  // "…/step-200/"
  // A folder that somebody copied to a name of his own is fine; one with another step's name is not.
  const std::optional<int64_t> step = StepOfName(name);
  if (step.has_value() && *step != manifest->info.step) {
    return absl::InvalidArgumentError(
        absl::StrCat("manifest.json: it is of step ", manifest->info.step, ", not of this folder"));
  }
  return manifest;
}

absl::StatusOr<std::string> ReadVerified(platform::Files& files, const std::string& path,
                                         const ManifestFile& file) {
  absl::StatusOr<std::string> content = files.Read(absl::StrCat(path, "/", file.name));
  if (!content.ok()) return content;
  if (static_cast<int64_t>(content->size()) != file.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name, ": it has ", content->size(), " bytes, the manifest says ", file.bytes));
  }
  if (Digest(*content) != file.digest) {
    return absl::InvalidArgumentError(absl::StrCat(file.name, ": its digest does not match the manifest"));
  }
  return content;
}

absl::StatusOr<Manifest> Verify(platform::Files& files, const std::string& path) {
  absl::StatusOr<Manifest> manifest = ReadFolderManifest(files, path);
  if (!manifest.ok()) return manifest;
  for (const ManifestFile& file : manifest->files) {
    const absl::StatusOr<std::string> content = ReadVerified(files, path, file);
    if (!content.ok()) return content.status();
  }
  return manifest;
}

absl::Status RemoveTemporaries(platform::Files& files, const std::string& directory, int attempt) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const std::optional<int> owner = AttemptOfTemporary(name);
    if (!owner.has_value() || *owner > attempt) continue;
    const absl::Status removed = files.RemoveAll(absl::StrCat(directory, "/", name));
    if (!removed.ok()) return removed;
  }
  return absl::OkStatus();
}

absl::Status Retain(platform::Files& files, const std::string& directory, int keep, int64_t current,
                    int attempt, std::vector<int64_t>& removed) {
  const absl::StatusOr<std::vector<int64_t>> steps = ListSteps(files, directory);
  if (!steps.ok()) return steps.status();
  // Nothing is read while there is nothing to remove.
  if (static_cast<int64_t>(steps->size()) <= keep) return absl::OkStatus();
  int kept = 1;  // `current`
  for (const int64_t step : *steps) {
    if (step >= current) continue;
    const std::string path = absl::StrCat(directory, "/", StepName(step));
    if (!Verify(files, path).ok()) continue;
    if (kept < keep) {
      ++kept;
      continue;
    }
    // Out of its name first: a removal that stops half-way leaves no damaged checkpoint behind.
    const std::string doomed = absl::StrCat(directory, "/", TemporaryName(step, attempt));
    const absl::Status renamed = files.Rename(path, doomed);
    if (!renamed.ok()) return renamed;
    removed.push_back(step);  // it has lost its name, whatever becomes of its files
    if (absl::Status status = files.RemoveAll(doomed); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
