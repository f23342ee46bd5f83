// SPDX-License-Identifier: Apache-2.0
#include "trainer/followed_file.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::trainer {

absl::Status AppendWhole(const platform::Descriptor& file, std::string_view text,
                         std::optional<off_t>& torn_at) {
  // Somebody may have emptied the file to make room: then there is no part, and a cut would make it longer.
  if (torn_at.has_value() && lseek(file.get(), 0, SEEK_END) > *torn_at &&
      ftruncate(file.get(), *torn_at) != 0) {
    return absl::UnavailableError(
        absl::StrCat("a part of what was written last stays: ", std::strerror(errno)));
  }
  torn_at.reset();
  const off_t end = lseek(file.get(), 0, SEEK_END);
  const ssize_t written = write(file.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) {
    return absl::OkStatus();
  }
  const std::string error = written < 0 ? std::strerror(errno) : "short write";
  // What follows a part could not be read either. Cutting a file needs no space.
  if (written <= 0 || ftruncate(file.get(), end) == 0) {
    return absl::UnavailableError(error);
  }
  torn_at = end;
  return absl::UnavailableError(absl::StrCat(error, ", of which a part stays: ", std::strerror(errno)));
}

FollowedFile::FollowedFile(platform::Files& files, std::string directory, checkpoint::Owner self,
                           std::string what, std::function<absl::StatusOr<Place>()> find_place)
    : files_(files),
      directory_(std::move(directory)),
      self_(std::move(self)),
      what_(std::move(what)),
      find_place_(std::move(find_place)) {}

absl::Status FollowedFile::Open() {
  TANDEM_ASSIGN_OR_RETURN(Place place, find_place_());
  TANDEM_ASSIGN_OR_RETURN(file_, platform::OpenRegularFile(place.path, O_WRONLY | O_CREAT | O_APPEND, 0644));
  path_ = std::move(place.path);
  header_ = std::move(place.header);
  torn_at_.reset();
  complained_ = false;
  return absl::OkStatus();
}

int64_t FollowedFile::Flush() {
  if (!waiting_.empty()) {
    FollowPath();
    Write();
  }
  return lost_ + static_cast<int64_t>(waiting_.size());
}

void FollowedFile::Append(std::string_view text) {
  FollowPath();
  waiting_.emplace_back(text);
  waiting_bytes_ += text.size();
  for (; waiting_bytes_ > kMostWaiting; waiting_.pop_front(), ++lost_) {
    waiting_bytes_ -= waiting_.front().size();
  }
  Write();
}

void FollowedFile::FollowPath() {
  if (platform::LeadsTo(path_, file_) || !checkpoint::Owns(files_, directory_, self_)) {
    return;
  }
  const absl::Status opened = Open();
  if (!opened.ok()) {
    Complain(absl::StrCat("the file of ", what_, " was removed or replaced, and cannot be opened again"),
             opened);
    return;
  }
  platform::Log(platform::LogLevel::kWarning,
                absl::StrCat("the file of ", what_,
                             " was removed or replaced; they are now written to the file at `path`"),
                {{"path", path_}});
}

void FollowedFile::Write() {
  const absl::Status appended =
      AppendWhole(file_, absl::StrCat(header_, absl::StrJoin(waiting_, "")), torn_at_);
  if (!appended.ok()) {
    Complain(
        absl::StrCat("cannot write ", what_, "; training goes on, and they are written when they can be"),
        appended);
    return;
  }
  if (waiting_.size() > 1) {
    complained_ = false;
    platform::Log(platform::LogLevel::kInfo, absl::StrCat(what_, " that had waited for room are written"),
                  {{"path", path_}, {"count", absl::StrCat(waiting_.size())}});
  }
  header_.clear();
  waiting_.clear();
  waiting_bytes_ = 0;
}

void FollowedFile::Complain(std::string_view message, const absl::Status& error) {
  if (!std::exchange(complained_, true)) {
    platform::Log(platform::LogLevel::kError, message,
                  {{"path", path_}, {"error", std::string(error.message())}});
  }
}

}  // namespace tandem::trainer
