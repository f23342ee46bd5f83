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
  // By name, in which prefixes are unified. Every name but those of lm_head begins with "backbone." in a
  // model with mixers (".mixer." in a name), and with "model." in any other. The prefix is added if the model
  // was saved without a head and so without prefixes; it replaces "model.", which transformers 5 also writes
  // for models with mixers.
  std::map<std::string, StoredTensor> tensors;
  // How many layers after the model's own predict further tokens: num_nextn_predict_layers in config.json,
  // else num_mtp_layers, else 1, which transformers assumes.
  int64_t predicting_layers = 1;
  // XXH3-128 of config.json and of each file's name, size, header and four samples of its content. Two
  // folders with different weights have different digests, except if they differ only outside the samples.
  std::string digest;
};

// Reads config.json, the index, the header of every file of weights, and the samples of its content that
// `digest` covers. Symbolic links are followed. Checks that the index and the files agree, and each file's
// length. The index's total_size is ignored, because many published ones are wrong.
//
// Returns InvalidArgument with everything that is wrong in one line: what is missing, an unfinished download,
// a Git LFS pointer in place of a file, broken links, weights of another format. Any other error means that
// the folder cannot be read now.
absl::StatusOr<HuggingFaceFolder> ReadHuggingFaceFolder(platform::Files& files, const std::string& path);

}  // namespace tandem::checkpoint
