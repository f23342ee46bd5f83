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

// Writes `metrics.jsonl` beside the checkpoints: for each step one JSON object {step, loss, grad_norm,
// learning_rate, tokens, seconds, nonfinite, scalars...}, with null for numbers that are not finite. Rank 0
// writes it, from one thread. followed_file.h says what happens if the file is removed, renamed or replaced
// while the job runs.
class MetricsFile {
 public:
  // Removes the lines of steps from `first_step` on, which will be computed again, and a line that a crash
  // cut off. Throws as ThrowIfUnwritable (failure.h), naming the file, if the file cannot be read or written
  // or the directory does not exist. `files` must outlive this object.
  MetricsFile(platform::Files& files, const std::string& directory, checkpoint::Owner self,
              int64_t first_step);

  // Appends a whole line or nothing. A failure is logged once, and training continues: the line is written
  // when there is room again (followed_file.h).
  void Append(const v1::StepReport& report);

  // The losses of the newest steps in the file when it was opened, at most Spread::kMost (spikes.h), in the
  // order of steps. Steps whose loss or gradients are not finite are left out.
  const std::vector<double>& losses_before() const { return losses_before_; }

  // Tries to write the waiting lines again. Returns the number of steps that the file lacks.
  int64_t Flush() { return file_.Flush(); }

 private:
  std::vector<double> losses_before_;
  FollowedFile file_;
};

}  // namespace tandem::trainer
