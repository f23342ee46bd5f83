// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/hugging_face_folder.h"

namespace tandem::checkpoint {

// Finds the weights that a model needs among the tensors of a folder. Compares names, shapes and types, and
// reads no elements.

// Consecutive elements of a tensor that some folders have in place of several smaller tensors, as with fused
// experts.
struct TensorSlice {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t begin = 0;           // index of the first element
};

struct WantedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<TensorSlice> instead;  // where to find it if the folder has no tensor of that name
  bool fused = false;  // models of its family store it in the first of `instead`; exports do, too
};

struct WantedWeights {
  std::vector<WantedTensor> tensors;
  // Tensors that a folder may have although the model does not need them, such as a head that is tied to the
  // embedding. Each is paired with the name of the tensor in `tensors` that it must equal bit for bit.
  std::vector<std::pair<WantedTensor, std::string>> copies;
  // Tensors that must be zeros if the folder has them: biases of routers, in a job without them.
  std::vector<WantedTensor> zeros;
  // The layers from this number on that predict further tokens, HuggingFaceFolder::predicting_layers of them,
  // are left out. -1: there are no such layers.
  int64_t first_layer_left_out = -1;
  std::string prefix_left_out;  // tensors with this prefix are left out, too; empty: none
};

// Consecutive elements in one file.
struct ElementsInFile {
  int file = 0;       // index in HuggingFaceFolder::files
  int64_t begin = 0;  // bytes from the file's beginning
  int64_t elements = 0;
  std::string dtype;  // "BF16", "F16" or "F32"
};

struct StoredWeights {
  std::map<std::string, ElementsInFile> tensors;  // by the name that the model needs
  // Two tensors that must have the same bits: `copy`, called `name`, and `of`, called `of_name`.
  struct Copy {
    std::string name;
    ElementsInFile copy;
    std::string of_name;
    ElementsInFile of;
  };
  std::vector<Copy> copies;
  std::map<std::string, ElementsInFile> zeros;

  std::vector<std::string> left_out;  // names of the tensors that were left out

  // Why the folder does not fit the model, by kind of problem. If one of these is not empty, nothing can be
  // loaded.
  std::vector<std::string> missing;
  std::vector<std::string> extra;
  std::vector<std::string> shapes;
  std::vector<std::string> dtypes;

  bool ok() const { return missing.empty() && extra.empty() && shapes.empty() && dtypes.empty(); }
};

// Ignores tensors that no model reads ("*.rotary_emb.inv_freq").
StoredWeights FindStoredWeights(const HuggingFaceFolder& folder, const WantedWeights& wanted);

// All problems in one line, with at most 20 names of each kind, and what to do: "2 tensors are missing (a,
// b); 1 tensor has another shape (c is [4, 8], not [8, 8])". Empty if there is no problem.
std::string ProblemText(const StoredWeights& weights);

// Joins at most 20 names: "a, b and 3 more".
std::string AtMostNames(const std::vector<std::string>& names);

}  // namespace tandem::checkpoint
