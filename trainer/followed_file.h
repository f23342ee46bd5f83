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

// Appends `text` to a file that was opened with O_APPEND, in one write(2). If that fails, as on a full disk,
// nothing is appended. If a part stays in the file, `torn_at` is set to the length of the file before it; the
// next call first cuts the file there, and appends nothing while that fails. The error names no path.
absl::Status AppendWhole(const platform::Descriptor& file, std::string_view text,
                         std::optional<off_t>& torn_at);

// A file in a job's directory to which the running job appends.
//
// If the file, or a folder above it, is removed, renamed or replaced meanwhile, later text goes to a new
// file. This happens only in a directory whose `.owner` (checkpoint/owner.h) names the job. A directory that
// was made again will name it soon; what lies below the mount point of an unmounted file system never will.
// Until then text goes to the file that is open, which may come back.
//
// A text that cannot be written, as on a full disk, waits and is written before the next one, so that the
// file has no gap. At most kMostWaiting bytes wait; beyond that the oldest texts are lost.
//
// Used from one thread.
class FollowedFile {
 public:
  static constexpr size_t kMostWaiting = size_t{8} << 20;

  struct Place {
    std::string path;    // created if it does not exist
    std::string header;  // appended together with the first text
  };

  // `what` names the contents in the log. `find_place` chooses the file whenever one is to be opened; it
  // creates its own folders below `directory`, but not `directory`. `files` outlives this object.
  FollowedFile(platform::Files& files, std::string directory, checkpoint::Owner self, std::string what,
               std::function<absl::StatusOr<Place>()> find_place);

  // Must be called once, before the first Append. The error names the path.
  absl::Status Open();

  // Appends the waiting texts and then this one, each as a whole or not at all (AppendWhole). Logs the
  // first failure of a file, and again when the waiting texts have been written.
  void Append(std::string_view text);

  // Tries to write the waiting texts again. Returns the number of texts that the file lacks: those that still
  // wait and those that are lost.
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
  std::string header_;  // header of the open file; empty once it is in the file
  platform::Descriptor file_;
  std::optional<off_t> torn_at_;  // if a part of a text stays in the file: its length without that part
  bool complained_ = false;
  std::deque<std::string> waiting_;  // if there are too many, the first are lost
  size_t waiting_bytes_ = 0;
  int64_t lost_ = 0;  // number of texts lost
};

}  // namespace tandem::trainer
