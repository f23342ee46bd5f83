// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/config_json.h"
#include "checkpoint/safetensors.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// A folder of a Hugging Face model, as a download or `save_pretrained` leaves it: config.json, and the
// weights in model.safetensors, or in model-00001-of-0000N.safetensors with model.safetensors.index.json.

inline constexpr char kWeightsName[] = "model.safetensors";
inline constexpr char kWeightsIndexName[] = "model.safetensors.index.json";

struct WeightsFile {
  std::string name;
  int64_t bytes = 0;
};

struct StoredTensor {
  int file = 0;  // index in files
  TensorPlace place;
};

struct HuggingFaceFolder {
  std::string path;
  std::vector<WeightsFile> files;  // by name
  // By name, after the prefix of the names was unified. A model that was saved without a head has names
  // without "model." or "backbone." in front; they get "model." here, except those of lm_head. In a model
  // with mixers (".mixer." in a name) the prefix is "backbone.", also if transformers 5 saved it as "model.".
  std::map<std::string, StoredTensor> tensors;
  // The number of layers behind the model's own layers that predict further tokens: num_nextn_predict_layers
  // in config.json, or 1 as in transformers if the key is missing.
  int64_t predicting_layers = 1;
  // XXH3-128 of config.json and of each file's name, size, header and four samples of its content. Two
  // folders with different weights have different digests, except if they differ only outside the samples.
  std::string digest;
};

// Reads config.json, the index and every file's header, and of the weights only the samples. Symbolic links
// are followed. Checks that the index and the files agree, and each file's length. The index's total_size is
// ignored, because many published ones are wrong.
//
// Returns InvalidArgument with everything that is wrong in one line: what is missing, an unfinished download,
// a Git LFS pointer in place of a file, broken links, weights of another format. Any other error means that
// the folder cannot be read now.
absl::StatusOr<HuggingFaceFolder> ReadHuggingFaceFolder(platform::Files& files, const std::string& path);

}  // namespace tandem::checkpoint
