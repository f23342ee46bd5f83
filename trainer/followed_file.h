// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/owner.h"
#include "platform/files.h"
#include "platform/regular_file.h"

namespace tandem::trainer {

// A file in a job's directory to which the running job appends.
//
// Where it is removed, renamed or replaced meanwhile, alone or with a folder above it, what comes next goes
// to another one. Only in a directory whose `.owner` (checkpoint/owner.h) names the job: one that was made
// again is the job's soon, and what lies beneath a file system that was unmounted never is. Until then it
// goes to the file that is open, which may come back.
//
// A text that cannot be written, as on a full disk, waits and is written with the next one for which there is
// room, so that the file has no hole. At most kMostWaiting bytes wait; then the oldest texts are lost.
//
// Used from one thread.
class FollowedFile {
 public:
  static constexpr size_t kMostWaiting = size_t{8} << 20;

  struct Place {
    std::string path;    // the file is made where there is none
    std::string header;  // appended with the first text
  };

  // `what` names the contents in the log. `find_place` says, whenever a file is to be opened, which one; it
  // makes the folders of its own above it, but not `directory`. `files` outlives this.
  FollowedFile(platform::Files& files, std::string directory, checkpoint::Owner self, std::string what,
               std::function<absl::StatusOr<Place>()> find_place);

  // Once, before the first Append. The error names the path.
  absl::Status Open();

  // The whole text or nothing (append_whole.h), after those that wait. The first failure of a file is logged,
  // and when what waited is written.
  void Append(std::string_view text);

  // Tries again what waits; returns the number of texts that are not in the file: those that wait still, and
  // those that are lost.
  int64_t Flush();

 private:
  void FollowPath();
  void Write();
  void Complain(std::string_view message, const absl::Status& error);

  platform::Files& files_;
  const std::string directory_;
  const checkpoint::Owner self_;
  const std::string what_;
  const std::function<absl::StatusOr<Place>()> find_place_;
  std::string path_;
  std::string header_;  // of the file; empty: it is there
  platform::Descriptor file_;
  std::optional<off_t> torn_at_;  // its length without the part of a text that stays in it
  bool complained_ = false;
  std::deque<std::string> waiting_;  // texts; the first ones are lost where there are too many
  size_t waiting_bytes_ = 0;
  int64_t lost_ = 0;  // texts
};

}  // namespace tandem::trainer
