// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "checkpoint/owner.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "tandem/v1/report.pb.h"

namespace tandem::trainer {

// `metrics.jsonl` beside the checkpoints: one JSON object a step {step, loss, grad_norm, learning_rate,
// tokens, seconds, nonfinite, scalars...}; what is not finite is null. Written by rank 0, from one thread.
//
// Where the file is removed, renamed or replaced while the job runs, alone or with the directory, the next
// lines go to the one at its path, which is made where there is none. Only in a directory whose `.owner`
// (checkpoint/owner.h) names the job: one that was made again is the job's soon, and what lies beneath a file
// system that was unmounted never is. Until then they go to the file that is open, which may come back.
class MetricsFile {
 public:
  // Drops the lines of steps that will come again, those after `resumed_step` and where that is 0 the one
  // before step 1, and a line that was torn by a crash. Throws UserError, naming the file, where that cannot
  // be read or written, or the directory is not there.
  // `files` outlives it.
  MetricsFile(platform::Files& files, const std::string& directory, checkpoint::Owner self,
              int64_t resumed_step);

  // A whole line or nothing (append_whole.h). A failure is logged once and training goes on: the reports go
  // to the service as well.
  void Append(const v1::StepReport& report);

 private:
  absl::Status Open();
  void FollowPath();
  void Complain(std::string_view message, const std::string& error);

  platform::Files& files_;
  const std::string directory_;
  const checkpoint::Owner self_;
  const std::string path_;
  platform::Descriptor file_;
  bool complained_ = false;
};

}  // namespace tandem::trainer
