// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "platform/files.h"
#include "platform/regular_file.h"
#include "tandem/v1/report.pb.h"

namespace tandem::trainer {

// `metrics.jsonl` beside the checkpoints: one JSON object a step {step, loss, grad_norm, learning_rate,
// tokens, seconds, nonfinite, scalars...}; what is not finite is null. Written by rank 0, from one thread.
class MetricsFile {
 public:
  // Drops the lines of steps that will come again, those after `resumed_step` and where that is 0 the one
  // before step 1, and a line that was torn by a crash. Throws UserError, naming the file, where that cannot
  // be read or written, or the directory is not there.
  MetricsFile(const std::string& directory, int64_t resumed_step);

  // One write(2), of a whole line or nothing. A failure is logged once and training goes on: the reports go
  // to the service as well.
  void Append(const v1::StepReport& report);

 private:
  const std::string path_;
  platform::Descriptor file_;
  bool complained_ = false;
};

}  // namespace tandem::trainer
