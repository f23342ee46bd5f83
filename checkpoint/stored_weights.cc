// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stored_weights.h"

#include <optional>
#include <set>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "checkpoint/manifest.h"
#include "fsdp/slice.h"
#include "platform/counted_text.h"
#include "platform/shown_text.h"

namespace tandem::checkpoint {
namespace {

constexpr size_t kMostNames = 20;

bool IsReadable(std::string_view dtype) { return dtype == "BF16" || dtype == "F16" || dtype == "F32"; }

bool IsOfQuantised(std::string_view name, std::string_view dtype) {
  return name.ends_with("_scale_inv") || name.ends_with("_blocks") || name.ends_with("_scales") ||
         name.ends_with(".qweight") || dtype.starts_with("F8");
}

// Returns the number in "model.layers.N."; -1 if there is none.
int64_t LayerOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, absl::MaxSplits('.', 3));
  int64_t layer = -1;
  return parts.size() == 4 && parts[0] == "model" && parts[1] == "layers" &&
                 absl::SimpleAtoi(parts[2], &layer)
             ? layer
             : -1;
}

class Finder {
 public:
  explicit Finder(const HuggingFaceFolder& folder) : folder_(folder) {}

  StoredWeights Find(const WantedWeights& wanted) {
    for (const WantedTensor& tensor : wanted.tensors) {
      if (const std::optional<ElementsInFile> place = PlaceOf(tensor)) {
        found_.tensors.emplace(tensor.name, *place);
      }
    }
    for (const auto& [copy, of] : wanted.copies) {
      const auto original = found_.tensors.find(of);
      if (folder_.tensors.contains(copy.name)) {
        const std::optional<ElementsInFile> place = PlaceOf(copy);
        if (place.has_value() && original != found_.tensors.end()) {
          found_.copies.push_back({.name = copy.name, .copy = *place, .of_name = of, .of = original->second});
        }
      }
    }
    for (const WantedTensor& tensor : wanted.zeros) {
      if (folder_.tensors.contains(tensor.name)) {
        if (const std::optional<ElementsInFile> place = PlaceOf(tensor)) {
          found_.zeros.emplace(tensor.name, *place);
        }
      }
    }
    for (const auto& [name, tensor] : folder_.tensors) {
      const int64_t behind = LayerOf(name) - wanted.first_layer_left_out;
      const bool is_behind =
          wanted.first_layer_left_out >= 0 && behind >= 0 && behind < folder_.predicting_layers;
      if (is_behind || (!wanted.prefix_left_out.empty() && name.starts_with(wanted.prefix_left_out))) {
        found_.left_out.push_back(name);
      } else if (!used_.contains(name) && !name.ends_with(".rotary_emb.inv_freq")) {
        const bool quantised = IsOfQuantised(name, tensor.place.dtype);
        found_.extra.push_back(absl::StrCat(Named(name), quantised ? ", which is of a quantised model" : ""));
      }
    }
    return std::move(found_);
  }

 private:
  static std::string Named(const std::string& name) { return platform::Shown(name, 200); }

  std::optional<ElementsInFile> PlaceOf(const WantedTensor& wanted) {
    if (const auto own = folder_.tensors.find(wanted.name); own != folder_.tensors.end()) {
      return Elements(own->second, {.name = wanted.name, .shape = wanted.shape}, wanted.shape);
    }
    for (const TensorSlice& slice : wanted.instead) {
      if (const auto whole = folder_.tensors.find(slice.name); whole != folder_.tensors.end()) {
        return Elements(whole->second, slice, wanted.shape);
      }
    }
    const std::string& name = wanted.fused ? wanted.instead.front().name : wanted.name;
    if (missing_.insert(name).second) {
      found_.missing.push_back(name);
    }
    return std::nullopt;
  }

  std::optional<ElementsInFile> Elements(const StoredTensor& stored, const TensorSlice& slice,
                                         const std::vector<int64_t>& shape) {
    const bool is_new = used_.insert(slice.name).second;  // of many slices, one reports what is wrong
    const TensorPlace& place = stored.place;
    if (place.shape != slice.shape) {
      if (is_new) {
        found_.shapes.push_back(
            absl::StrCat(slice.name, " is ", ShapeText(place.shape), ", not ", ShapeText(slice.shape)));
      }
      return std::nullopt;
    }
    if (!IsReadable(place.dtype)) {
      if (is_new) {
        found_.dtypes.push_back(absl::StrCat(slice.name, " is ", place.dtype));
      }
      return std::nullopt;
    }
    return ElementsInFile{.file = stored.file,
                          .begin = place.begin + slice.begin * BytesOfDtype(place.dtype),
                          .elements = fsdp::NumElements(shape, {}),
                          .dtype = place.dtype};
  }

  const HuggingFaceFolder& folder_;
  std::set<std::string> used_;  // names of tensors in the folder
  std::set<std::string> missing_;
  StoredWeights found_;
};

}  // namespace

StoredWeights FindStoredWeights(const HuggingFaceFolder& folder, const WantedWeights& wanted) {
  return Finder(folder).Find(wanted);
}

std::string AtMostNames(const std::vector<std::string>& names) {
  if (names.size() <= kMostNames) {
    return absl::StrJoin(names, ", ");
  }
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kMostNames, ", "), " and ",
                      names.size() - kMostNames, " more");
}

std::string ProblemText(const StoredWeights& weights) {
  std::vector<std::string> texts;
  const auto add = [&](const std::vector<std::string>& names, const char* one, const char* many,
                       const char* remedy) {
    if (!names.empty()) {
      texts.push_back(absl::StrCat(platform::CountedText(static_cast<int64_t>(names.size()), "tensor"), " ",
                                   names.size() == 1 ? one : many, " (", AtMostNames(names), ")", remedy));
    }
  };
  add(weights.missing, "is missing", "are missing",
      absl::StrJoin(weights.missing, "") == "lm_head.weight"
          ? ": if the head shares the embedding's weights, config.json must say tie_word_embeddings"
          : "");
  add(weights.extra, "is not of this model", "are not of this model", "");
  add(weights.shapes, "has another shape", "have other shapes", "");
  add(weights.dtypes, "has a type that is not read", "have types that are not read",
      ": cast the model to bf16, fp16 or fp32 first");
  return absl::StrJoin(texts, "; ");
}

}  // namespace tandem::checkpoint
