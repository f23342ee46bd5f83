// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/saved_step.h"
#include "checkpoint/stored_weights.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// Writes the weights of a step as files that Hugging Face's libraries load.

struct ExportedTensor {
  std::string name;  // of the array and of the tensor
  std::vector<int64_t> shape;
  // The tensor that the array becomes a part of, if it is none of its own. Such arrays follow each other, and
  // fill the tensor.
  std::optional<TensorSlice> part_of;
  bool keeps_fp32 = false;    // stays fp32 whatever type the others get
  bool may_be_zeros = false;  // written as zeros if the step has no such array
};

struct ExportOptions {
  bool bf16 = true;  // otherwise fp32
  // Limit for the tensors in a file; a larger tensor has a file of its own.
  int64_t most_file_bytes = 5'000'000'000;
};

struct ExportedFiles {
  std::vector<std::string> names;
  int64_t bytes = 0;  // of the tensors
};

// Writes `tensors` of `step`, in their order, to the folder `to`, which exists: model.safetensors, or where
// that would have more than most_file_bytes, several files and their index. From fp32 to the nearest bf16,
// ties to even. What is read of the step is read once, and verified as it is, by several threads
// (step_stream.h), each of which rounds and writes what it has read. InvalidArgument, naming the array, where
// one is not there, has another shape or is not of fp32; OutOfRange where a value is finite in fp32 and not
// in bf16; else the error of a file. A file gets its header last: what an error or a kill leaves of it cannot
// be loaded.
absl::StatusOr<ExportedFiles> ExportWeights(platform::Files& files, const SavedStep& step,
                                            const std::vector<ExportedTensor>& tensors,
                                            const ExportOptions& options, const std::string& to);

}  // namespace tandem::checkpoint
