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

// An export to a folder is written to "<the folder>.tmp.<random>", which is renamed once it is whole.
inline constexpr char kUnfinishedExport[] = ".tmp.";

struct ExportedTensor {
  std::string name;  // name of the array in the step, and of the tensor in the export
  std::vector<int64_t> shape;
  // If set, the array becomes a part of this tensor instead of a tensor of its own. Arrays that become parts
  // of one tensor must be consecutive in the list and fill the tensor.
  std::optional<TensorSlice> part_of;
  bool keeps_fp32 = false;    // written as fp32 even if `bf16` is set
  bool may_be_zeros = false;  // if the step has no such array, zeros are written
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

// Writes `tensors` of `step`, in their order, to the existing folder `to`: model.safetensors, or several
// files and their index if one file would exceed most_file_bytes. fp32 is rounded to the nearest bf16, ties
// to even. The step is read and verified by StreamStep (saved_step.h); each of its threads rounds and writes
// what it has read.
//
// Returns InvalidArgument, with the array's name, if an array is missing (and may not be zeros), has another
// shape or is not fp32; OutOfRange if a value is finite in fp32 but not in bf16; otherwise the error of a
// file. The header of a file is written last, so a file that an error or a kill left incomplete cannot be
// loaded.
absl::StatusOr<ExportedFiles> ExportWeights(platform::Files& files, const SavedStep& step,
                                            const std::vector<ExportedTensor>& tensors,
                                            const ExportOptions& options, const std::string& to);

}  // namespace tandem::checkpoint
