// SPDX-License-Identifier: Apache-2.0
#include "jobspec/shared_files.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "jobspec/text.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {

void CheckApart(const std::vector<FilesOfText>& trained, const FilesOfText& validation,
                std::vector<v1::Violation>& violations) {
  std::map<std::pair<uint64_t, uint64_t>, const FoundFile*> held_out;
  for (const FoundFile& found : validation.files) {
    held_out.emplace(std::pair(found.file.device, found.file.inode), &found);
  }
  for (const FilesOfText& text : trained) {
    for (const FoundFile& found : text.files) {
      const auto same = held_out.find({found.file.device, found.file.inode});
      if (same == held_out.end()) {
        continue;
      }
      const std::string& path = same->second->path;
      violations.push_back(
          MakeViolation(validation.field, validation.path, "files that are not among those of " + text.field,
                        absl::StrCat(platform::Shown(path, 200), " is also a training file",
                                     found.path == path ? "" : ", " + platform::Shown(found.path, 200),
                                     ": name other files, or hold out a part of ", text.field,
                                     " with data.validation_fraction")));
      return;
    }
  }
}

void CheckShared(const std::vector<FilesOfText>& trained, std::vector<v1::Violation>& violations) {
  std::vector<std::vector<data::FileOfText>> texts;
  for (const FilesOfText& text : trained) {
    std::vector<data::FileOfText>& files = texts.emplace_back();
    for (const FoundFile& found : text.files) {
      files.push_back(found.file);
    }
  }
  const std::optional<data::SharedFile> shared = data::FindSharedFile(texts);
  if (shared.has_value()) {
    const FilesOfText& second = trained[shared->second];
    const std::string& first = trained[shared->first].field;
    violations.push_back(MakeViolation(
        second.field, second.path,
        absl::StrCat("files that are not among those of ", first, ", or the same files as there"),
        absl::StrCat(platform::Shown(second.files[shared->file].path, 200), " is also a file of ", first,
                     ", and what is held out of the one would be trained on through the other: name other "
                     "files, name held-out text with data.validation, or set data.validation_fraction to "
                     "0")));
  }
}

}  // namespace tandem::jobspec
