// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::checkpoint {

// Tensors and folders as other programs write them.

struct MadeTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::string FloatBytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::string HalfWords(const std::vector<uint16_t>& words) {
  std::string bytes(words.size() * sizeof(uint16_t), '\0');
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

// Returns an F32 tensor of that many elements: first, first + 1, ...
inline MadeTensor Counting(const std::string& name, const std::vector<int64_t>& shape, float first = 1) {
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    elements *= dim;
  }
  std::vector<float> values;
  for (int64_t i = 0; i < elements; ++i) {
    values.push_back(first + static_cast<float>(i));
  }
  return {.name = name, .dtype = "F32", .shape = shape, .bytes = FloatBytes(values)};
}

inline std::string WeightsFileOf(const std::vector<MadeTensor>& tensors) {
  std::vector<TensorToWrite> entries;
  std::string content;
  for (const MadeTensor& tensor : tensors) {
    entries.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    content += tensor.bytes;
  }
  return *SafetensorsBeginning(entries, {{"format", "pt"}}) + content;
}

inline std::string IndexOf(const std::map<std::string, std::string>& weight_map) {
  std::string text = R"({"metadata": {"total_size": 1}, "weight_map": {)";
  for (const auto& [tensor, file] : weight_map) {
    text += (text.back() == '{' ? "\"" : ", \"") + tensor + "\": \"" + file + "\"";
  }
  return text + "}}";
}

}  // namespace tandem::checkpoint
