// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/files.h"
#include "trainer/metrics_file.h"
#include "trainer/reporter.h"
#include "trainer/tensorboard_file.h"

namespace tandem::plan {
struct TrainedParameter;
}

namespace tandem::trainer {

class RankObserver;

// Where the summaries of a job's steps go on rank 0: metrics.jsonl and TensorBoard's file in the job's
// directory, the observer, and where gradients are not finite the log. Used by the reporter's thread.
class StepReports {
 public:
  // directory: of the checkpoints; empty: no files. resumed_step: done before. `parameters` and `observer`
  // outlive it. Throws UserError where a file cannot be written.
  StepReports(platform::Files& files, const std::string& directory, int64_t resumed_step,
              const std::vector<plan::TrainedParameter>& parameters, RankObserver& observer);

  void Append(const StepSummary& summary);

  // Which gradients of the newest step that had such were not finite. Any thread, once the reporter is
  // flushed.
  const std::string& nonfinite_places() const { return nonfinite_places_; }

 private:
  void AppendNonfinite(const StepSummary& summary);

  const std::vector<plan::TrainedParameter>& parameters_;
  RankObserver& observer_;
  std::optional<MetricsFile> metrics_;
  std::optional<TensorBoardFile> tensorboard_;
  std::string nonfinite_places_ = "the sum of their squares";  // may overflow where all elements are finite
  bool has_warned_ = false;
};

}  // namespace tandem::trainer
