// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::checkpoint {

// How much of one text a job has read. Windows are sequences of the segment's length.
struct TextPosition {
  std::string name;    // empty if the job names its only text in data.train
  std::string digest;  // identifies the text (data/loader.h)
  int64_t weight = 0;  // the weight for data/blend.h
  int64_t windows = 0;
  int64_t first = 0;  // windows taken before the segment, over all epochs
  int64_t taken = 0;  // windows taken by its end, or by the checkpoint's step
  bool operator==(const TextPosition&) const = default;
};

// A part of a job in which its texts, their weights, its batch, sequence length and seed did not change. A
// checkpoint has all segments of its job, the last one up to its step.
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

}  // namespace tandem::checkpoint
