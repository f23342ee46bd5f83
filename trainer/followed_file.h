// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

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
// Used from one thread.
class FollowedFile {
 public:
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

  // The whole text or nothing (append_whole.h): what fails is lost. The first failure of a file is logged.
  void Append(std::string_view text);

 private:
  void FollowPath();
  void Write(std::string_view text);
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
};

}  // namespace tandem::trainer
