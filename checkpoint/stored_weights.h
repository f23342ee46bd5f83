// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/hugging_face_folder.h"

namespace tandem::checkpoint {

// What a model wants of a folder of weights, and where it lies there: names and shapes, no elements.

// Consecutive elements of a tensor that a folder has in place of smaller ones: fused experts.
struct TensorSlice {
  std::string name;
  std::vector<int64_t> shape;  // of the whole
  int64_t begin = 0;           // the first element
};

struct WantedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<TensorSlice> instead;  // where it lies if there is no tensor of that name
};

struct WantedWeights {
  std::vector<WantedTensor> tensors;
  // Tensors that a folder may have although the model has none of their own: each must equal the second bit
  // for bit, as a head that is tied to the embedding.
  std::vector<std::pair<WantedTensor, std::string>> copies;
  // The same, of which each must be zeros: biases of routers, of a job that has none.
  std::vector<WantedTensor> zeros;
  // Layers from this number on are left out: those that predict further tokens. -1: there are no such layers.
  int64_t first_layer_left_out = -1;
};

// Consecutive elements in one file.
struct ElementsInFile {
  int file = 0;       // index in HuggingFaceFolder::files
  int64_t begin = 0;  // bytes from the file's beginning
  int64_t elements = 0;
  std::string dtype;  // "BF16", "F16" or "F32"
};

struct StoredWeights {
  std::map<std::string, ElementsInFile> tensors;  // by wanted name
  // Both must have the same bits; named by the first.
  struct Copy {
    std::string name;
    ElementsInFile copy;
    std::string of_name;
    ElementsInFile of;
  };
  std::vector<Copy> copies;
  std::map<std::string, ElementsInFile> zeros;

  std::vector<std::string> left_out;  // of layers that predict further tokens

  // Why the folder is not of this model, by kind; nothing of these can be loaded.
  std::vector<std::string> missing;
  std::vector<std::string> extra;
  std::vector<std::string> shapes;
  std::vector<std::string> dtypes;

  bool ok() const { return missing.empty() && extra.empty() && shapes.empty() && dtypes.empty(); }
};

// Names in `folder` that no model reads are no problem: "*.rotary_emb.inv_freq".
StoredWeights FindStoredWeights(const HuggingFaceFolder& folder, const WantedWeights& wanted);

// "2 tensors are missing (a, b); 1 tensor has another shape (c is [4, 8], not [8, 8])": one line with at most
// 20 of each kind, and what to do. Empty where there is no problem.
std::string ProblemText(const StoredWeights& weights);

// "a, b and 3 more": at most 20.
std::string AtMostNames(const std::vector<std::string>& names);

}  // namespace tandem::checkpoint
