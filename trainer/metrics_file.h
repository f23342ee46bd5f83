// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/owner.h"
#include "platform/files.h"
#include "tandem/v1/report.pb.h"
#include "trainer/followed_file.h"

namespace tandem::trainer {

// `metrics.jsonl` beside the checkpoints: one JSON object a step {step, loss, grad_norm, learning_rate,
// tokens, seconds, nonfinite, scalars...}; what is not finite is null. Written by rank 0, from one thread.
// Where the file is removed, renamed or replaced while the job runs, followed_file.h says where lines go.
class MetricsFile {
 public:
  // Drops the lines of steps that will come again, those from `first_step` on, and a line that was torn by a
  // crash. Throws as ThrowIfUnwritable (directory_error.h),
  // naming the file, where that cannot be read or written, or the directory is not there.
  // `files` outlives it.
  MetricsFile(platform::Files& files, const std::string& directory, checkpoint::Owner self,
              int64_t first_step);

  // A whole line or nothing. A failure is logged once and training goes on: the line waits until there is
  // room (followed_file.h), and the reports go to the service as well.
  void Append(const v1::StepReport& report);

  // Of the newest steps that it had at first, at most Spread::kMost (spread.h), in step order; those that are
  // not finite, or whose gradients are not, are left out.
  const std::vector<double>& losses_before() const { return losses_before_; }

  // Tries again the lines that wait; returns the number of steps that the file lacks.
  int64_t Flush() { return file_.Flush(); }

 private:
  std::vector<double> losses_before_;
  FollowedFile file_;
};

}  // namespace tandem::trainer
