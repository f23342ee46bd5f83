// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::checkpoint {

// How much of one text a job has read in a DataSegment, in windows of the segment's sequence length
// (data/loader.h).
struct TextPosition {
  std::string name;     // empty if data.train gives the job's only text
  std::string digest;   // digest of the text (data/loader.h)
  int64_t weight = 0;   // the weight for data/blend.h
  int64_t windows = 0;  // in one epoch
  int64_t first = 0;    // windows taken before the segment, over all epochs
  int64_t taken = 0;    // windows taken by the segment's end, also over all epochs
  bool operator==(const TextPosition&) const = default;
};

// Consecutive steps of a job for which its texts, their weights, the batch, the sequence length and the seed
// did not change. A checkpoint has all segments of its job; the last one ends at the checkpoint's step.
struct DataSegment {
  int64_t from_step = 0;    // number of steps before it
  int64_t from_sample = 0;  // number of samples before it, over all texts
  int64_t global_batch_size = 0;
  int64_t sequence_length = 0;
  uint64_t seed = 0;
  bool shuffles = true;
  std::vector<TextPosition> sources;
  bool operator==(const DataSegment&) const = default;
};

// The weights that a job began with (checkpoint.start_from).
struct Origin {
  std::string path;
  std::string digest;  // of a manifest, or of a folder (hugging_face_folder.h)
  bool operator==(const Origin&) const = default;
};

// The gradient norm of a step, before clipping.
struct StepNorm {
  int64_t step = 0;
  double norm = 0;
  bool operator==(const StepNorm&) const = default;
};

struct Info {
  int64_t step = 0;
  int attempt = 0;
  std::string job;                // its id
  std::string spec_digest;        // digest of the resolved spec
  std::string parameters_digest;  // that of plan::JobPlan; empty in version 2
  std::optional<uint64_t> seed;   // unset in checkpoints of older builds
  // The members below are empty or 0 in checkpoints of older builds.
  std::string data_digest;          // covers the files' names and sizes
  std::string data_content_digest;  // covers their contents too (data/loader.h)
  std::string model;     // JSON object: the function that the weights belong to (jobspec/model_function.h)
  std::string training;  // JSON object: how the weights are trained (jobspec/training_function.h)
  int64_t global_batch_size = 0;  // sequences in a step
  int64_t sequence_length = 0;    // in tokens
  std::vector<DataSegment> data;  // how much of its texts was read
  int64_t skipped_steps = 0;      // steps up to `step` that changed no weight
  std::vector<StepNorm> norms;    // of the newest steps that changed weights (trainer/spikes.h)
  std::optional<Origin> origin;   // unset if the job's seed made the first weights
  // JSON object: the report of `step`, if the checkpoint was saved before the validation of that step ended.
  // Empty: no report is held back.
  std::string pending_report;
};

}  // namespace tandem::checkpoint
