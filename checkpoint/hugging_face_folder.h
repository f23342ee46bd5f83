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
  // By name. Where no name of the folder begins with "model." or "backbone.", as models without a head are
  // saved, all but those of lm_head get the prefix "model." here.
  std::map<std::string, StoredTensor> tensors;
  // How many layers behind the model's predict further tokens, by config.json (num_nextn_predict_layers;
  // where that is silent 1, as transformers takes it).
  int64_t predicting_layers = 1;
  // XXH3-128 of config.json and of each file's name, size, header and four samples of its content: folders
  // that differ in weights differ in it, unless all samples are equal.
  std::string digest;
};

// Reads config.json, the index and every file's header, and of weights only the samples. Symbolic links are
// followed. Checks that the index and the files agree, and each file's length. The index's total_size is not
// used: many published ones are wrong. InvalidArgument naming all that is wrong in one line: what is missing,
// a download that has not ended, a Git LFS pointer in place of a file, links that lead nowhere, weights of
// another format. Any other error: the folder cannot be read now.
absl::StatusOr<HuggingFaceFolder> ReadHuggingFaceFolder(platform::Files& files, const std::string& path);

}  // namespace tandem::checkpoint
