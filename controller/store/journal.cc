// SPDX-License-Identifier: Apache-2.0
#include "controller/store/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "platform/files.h"
#include "platform/status_macros.h"
#include "platform/xxh3.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::controller {
namespace {

constexpr char kMagic[] = "tandem-journal 1";

// Moves the first line of `rest` to `line`. Returns false if no line ends in it.
bool TakeLine(std::string_view& rest, std::string_view& line) {
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) {
    return false;
  }
  line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

// Moves the first commit of `rest` to `out`. Returns false if it is not complete.
bool TakeCommit(std::string_view& rest, v1::ListEventsResponse& out) {
  std::string_view line;
  if (!TakeLine(rest, line)) {
    return false;
  }
  const std::vector<std::string> words = absl::StrSplit(absl::string_view(line.data(), line.size()), ' ');
  uint64_t length = 0;
  if (words.size() != 3 || words[0] != "commit" || !absl::SimpleAtoi(words[1], &length) ||
      length > rest.size()) {
    return false;
  }
  const std::string_view bytes = rest.substr(0, length);
  rest.remove_prefix(length);
  return platform::Xxh3Of(bytes) == words[2] &&
         out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

std::string LineOf(int64_t count) {
  const std::string line = absl::StrFormat("tandem-commits 1 %020d", count);
  return absl::StrCat(line, " ", platform::Xxh3Of(line), "\n");
}

}  // namespace

absl::StatusOr<std::optional<Journal::Content>> Journal::Read() const {
  const absl::StatusOr<std::string> text = platform::SystemFiles().Read(path_);
  if (absl::IsNotFound(text.status())) {
    return std::nullopt;
  }
  TANDEM_RETURN_IF_ERROR(text.status());
  std::string_view rest = *text;
  std::string_view line;
  Content out;
  const bool has_line = TakeLine(rest, line);
  const std::vector<std::string> words = absl::StrSplit(absl::string_view(line.data(), line.size()), ' ');
  if (!has_line || words.size() != 6 || absl::StrCat(words[0], " ", words[1]) != kMagic ||
      !absl::SimpleAtoi(words[3], &out.term) || !absl::SimpleAtoi(words[4], &out.seq) ||
      platform::Xxh3Of(line.substr(0, line.rfind(' '))) != words[5]) {
    return absl::DataLossError(absl::StrCat(path_, " is damaged: its first line cannot be read"));
  }
  out.store_id = words[2];
  while (!rest.empty()) {
    v1::ListEventsResponse commit;
    if (!TakeCommit(rest, commit)) {
      out.is_cut = true;
      break;
    }
    out.events.insert(out.events.end(), commit.events().begin(), commit.events().end());
  }
  return out;
}

absl::Status Journal::Begin(const std::string& store_id, int64_t term, int64_t seq) {
  file_ = {};
  const std::string line = absl::StrCat(kMagic, " ", store_id, " ", term, " ", seq);
  TANDEM_RETURN_IF_ERROR(platform::ReplaceFile(platform::SystemFiles(), path_,
                                               absl::StrCat(line, " ", platform::Xxh3Of(line), "\n")));
  TANDEM_ASSIGN_OR_RETURN(file_, platform::OpenRegularFile(path_, O_WRONLY | O_APPEND));
  return absl::OkStatus();
}

absl::Status Journal::Append(const std::vector<v1::Event>& events) {
  if (file_.get() < 0) {
    return absl::OkStatus();
  }
  v1::ListEventsResponse commit;
  commit.mutable_events()->Assign(events.begin(), events.end());
  const std::string bytes = commit.SerializeAsString();
  const std::string all = absl::StrCat("commit ", bytes.size(), " ", platform::Xxh3Of(bytes), "\n", bytes);
  for (std::string_view rest = all; !rest.empty();) {
    const ssize_t written = write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      const absl::Status error = platform::FileError(errno, "write", path_);
      file_ = {};  // closed: later commits would not continue what was written
      return error;
    }
    rest.remove_prefix(written);
  }
  return absl::OkStatus();
}

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
  // A damaged file may be longer than a line.
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
