// SPDX-License-Identifier: Apache-2.0
#include "platform/filter_lines.h"

#include <cstdint>
#include <filesystem>

#include "platform/files.h"
#include "platform/status_macros.h"

namespace tandem::platform {
namespace {

// Reads a file in pieces, and returns the lines that are kept.
class LineFilter {
 public:
  LineFilter(size_t most_line_bytes, const std::function<bool(std::string_view line)>& keep)
      : most_line_bytes_(most_line_bytes), keep_(keep) {}

  // Appends the lines that end in `piece` and are kept.
  void Add(std::string_view piece, std::string& kept) {
    while (!piece.empty()) {
      const size_t end = piece.find('\n');
      const std::string_view part = piece.substr(0, end);
      too_long_ = too_long_ || begun_.size() + part.size() > most_line_bytes_;
      begun_.append(too_long_ ? std::string_view() : part);
      if (end == std::string_view::npos) {
        return;
      }
      if (!too_long_ && keep_(begun_)) {
        kept.append(begun_).push_back('\n');
      }
      begun_.clear();
      too_long_ = false;
      piece.remove_prefix(end + 1);
    }
  }

 private:
  const size_t most_line_bytes_;
  const std::function<bool(std::string_view line)>& keep_;
  std::string begun_;      // the beginning of the current line
  bool too_long_ = false;  // the current line: its further bytes are dropped
};

}  // namespace

absl::Status FilterLines(const std::string& path, size_t most_line_bytes,
                         const std::function<bool(std::string_view line)>& keep) {
  LineFilter filter(most_line_bytes, keep);
  int64_t begin = 0;
  std::string kept;
  Files& files = SystemFiles();
  const std::string temporary = path + ".tmp";
  TANDEM_ASSIGN_OR_RETURN(std::string piece, files.ReadRange(path, begin, kFilePartBytes));
  absl::Status status = files.WriteParts(temporary, [&]() -> absl::StatusOr<std::string_view> {
    kept.clear();
    while (kept.empty() && !piece.empty()) {
      begin += static_cast<int64_t>(piece.size());
      filter.Add(piece, kept);
      TANDEM_ASSIGN_OR_RETURN(piece, files.ReadRange(path, begin, kFilePartBytes));
    }
    return kept;
  });
  if (status.ok()) {
    status = files.Rename(temporary, path);
  }
  if (!status.ok()) {
    files.RemoveAll(temporary).IgnoreError();  // frees space on a full disk; the first error counts
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return files.SyncFolder(folder.empty() ? "." : folder);
}

}  // namespace tandem::platform
