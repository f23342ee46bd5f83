// SPDX-License-Identifier: Apache-2.0
#include "controller/store/commit_count.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "platform/files.h"
#include "platform/status_macros.h"
#include "platform/xxh3.h"

namespace tandem::controller {
namespace {

std::string LineOf(int64_t count) {
  const std::string line = absl::StrFormat("tandem-commits 1 %020d", count);
  return absl::StrCat(line, " ", platform::Xxh3Of(line), "\n");
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> CommitCount::Read(const std::string& path) {
  const absl::StatusOr<std::string> text = platform::SystemFiles().Read(path);
  if (absl::IsNotFound(text.status())) {
    return std::nullopt;
  }
  TANDEM_RETURN_IF_ERROR(text.status());
  const std::vector<std::string> words = absl::StrSplit(*text, ' ');
  int64_t count = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[2], &count) || *text != LineOf(count)) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: its line cannot be read"));
  }
  return count;
}

absl::Status CommitCount::Open(const std::string& path) {
  path_ = path;
  TANDEM_ASSIGN_OR_RETURN(file_, platform::OpenRegularFile(path, O_WRONLY | O_CREAT, 0644));
  // What is damaged may be longer than a line.
  return ftruncate(file_.get(), static_cast<off_t>(LineOf(0).size())) < 0
             ? platform::FileError(errno, "write", path)
             : absl::OkStatus();
}

absl::Status CommitCount::Write(int64_t count) {
  const std::string line = LineOf(count);
  count_ = count;
  ssize_t written = 0;
  do {
    written = pwrite(file_.get(), line.data(), line.size(), 0);
  } while (written < 0 && errno == EINTR);
  return written < 0 ? platform::FileError(errno, "write", path_) : absl::OkStatus();
}

}  // namespace tandem::controller
