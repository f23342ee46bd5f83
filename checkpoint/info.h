// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/data_segment.h"

namespace tandem::checkpoint {

// The weights that a job began with (checkpoint.start_from).
struct Origin {
  std::string path;
  std::string digest;  // of a manifest, or of a folder as hugging_face_folder.h says
  bool operator==(const Origin&) const = default;
};

// What the manifest says beside the arrays.
// The gradient norm of a step, before clipping.
struct StepNorm {
  int64_t step = 0;
  double norm = 0;
  bool operator==(const StepNorm&) const = default;
};

struct Info {
  int64_t step = 0;
  int attempt = 0;
  std::string job;                // id
  std::string spec_digest;        // of the resolved spec
  std::string parameters_digest;  // of plan::JobPlan; empty in version 2
  std::optional<uint64_t> seed;   // checkpoints of older builds do not say it
  // Checkpoints of older builds do not say what follows: it is empty or 0 there.
  std::string data_digest;          // of the files' names and sizes
  std::string data_content_digest;  // and of their contents (data/loader.h)
  std::string model;                // JSON object: what the weights are weights of (jobspec/model_function.h)
  std::string training;             // JSON object: how they are trained (jobspec/training_function.h)
  int64_t global_batch_size = 0;    // sequences of a step
  int64_t sequence_length = 0;      // tokens
  std::vector<DataSegment> data;    // how much of its texts was read
  int64_t skipped_steps = 0;        // up to `step`, which changed no weight
  std::vector<StepNorm> norms;      // of the newest that did (trainer/norm_window.h)
  std::optional<Origin> origin;     // none: the job's seed made the first weights
  // JSON object: the report of `step`, whose validation had not ended. Empty: none is to be made up for.
  std::string pending_report;
};

}  // namespace tandem::checkpoint
