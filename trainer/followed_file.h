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
// removes the part that was written. If the part cannot be removed, sets `torn_at` to the length of the file
// without it; the next call first truncates the file to that length, and appends nothing if that fails. The
// error does not contain the path.
absl::Status AppendWhole(const platform::Descriptor& file, std::string_view text,
                         std::optional<off_t>& torn_at);

// A file in a job's directory to which the running job appends.
//
// If the file, or a folder above it, is removed, renamed or replaced meanwhile, a new file is created for
// later text, but only in a directory whose `.owner` (checkpoint/owner.h) names the job. If a user made the
// directory again, the job will soon be its owner; the folder under an unmounted file system never gets an
// owner. Until then text is appended to the open file, which may become reachable again.
//
// A text that cannot be written, as on a full disk, is kept and written before the next text, so that the
// file has no gap. At most kMostWaiting bytes are kept; beyond that the oldest texts are lost.
//
// Used from one thread.
class FollowedFile {
 public:
  static constexpr size_t kMostWaiting = size_t{8} << 20;

  struct Place {
    std::string path;    // created if it does not exist
    std::string header;  // appended together with the first text
  };

  // `what` is the name of the contents in the log. `find_place` chooses the file whenever one must be opened;
  // it may create folders below `directory`, but not `directory`. `files` must outlive this object.
  FollowedFile(platform::Files& files, std::string directory, checkpoint::Owner self, std::string what,
               std::function<absl::StatusOr<Place>()> find_place);

  // Must be called once, before the first Append. The error names the path.
  absl::Status Open();

  // Appends the waiting texts and then this one, each as a whole or not at all (AppendWhole). Logs the
  // first failure of a file, and again when the waiting texts have been written.
  void Append(std::string_view text);

  // Tries to write the waiting texts again. Returns the number of texts that the file lacks: texts that still
  // wait and lost texts.
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
  std::optional<off_t> torn_at_;  // set if the file ends in a part of a text: its length without that part
  bool complained_ = false;
  std::deque<std::string> waiting_;  // the oldest first
  size_t waiting_bytes_ = 0;
  int64_t lost_ = 0;  // number of texts lost
};

}  // namespace tandem::trainer
