// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/hugging_face_folder.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

constexpr int64_t kPartElements = platform::kFilePartBytes / 4;

int64_t ElementsOf(const ExportedTensor& tensor) { return fsdp::NumElements(tensor.shape, {}); }

absl::Status CheckArray(const SavedStep& step, const ExportedTensor& tensor) {
  const ManifestArray* const array = step.Find(tensor.name);
  if (array == nullptr && tensor.may_be_zeros) {
    return absl::OkStatus();
  }
  if (array == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the step has no array ", tensor.name));
  }
  if (!Holds(*array, tensor.shape)) {
    return absl::InvalidArgumentError(absl::StrCat("array ", tensor.name, " is ", ShapeText(array->shape),
                                                   ", and its model says ", ShapeText(tensor.shape)));
  }
  if (array->dtype != "F32") {
    return absl::InvalidArgumentError(absl::StrCat("array ", tensor.name, " is ", array->dtype,
                                                   "; only checkpoints of fp32 are exported: not those of "
                                                   "precision: {compute: fp64}"));
  }
  return absl::OkStatus();
}

// Of little-endian fp32: the nearest bf16, ties to even. The element that has none; -1: all have.
int64_t ToBf16(const std::string& fp32, std::string& bf16) {
  const size_t count = fp32.size() / 4;
  bf16.resize(2 * count);
  bool lost = false;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, fp32.data() + 4 * i, sizeof(bits));
    const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    const uint32_t rounded = is_nan ? 0x7FC00000 : bits + 0x7FFF + ((bits >> 16) & 1);
    lost |= (bits & 0x7F800000) != 0x7F800000 && (rounded & 0x7F800000) == 0x7F800000;
    const auto high = static_cast<uint16_t>(rounded >> 16);
    std::memcpy(bf16.data() + 2 * i, &high, sizeof(high));
  }
  if (!lost) {
    return -1;
  }
  for (size_t i = 0;; ++i) {
    uint32_t bits;
    std::memcpy(&bits, fp32.data() + 4 * i, sizeof(bits));
    if ((bits & 0x7F800000) != 0x7F800000 &&
        ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0x7F800000) == 0x7F800000) {
      return static_cast<int64_t>(i);
    }
  }
}

// The content of one file, part by part.
class ExportedFile {
 public:
  ExportedFile(const SavedStep& step, bool bf16, const std::vector<ExportedTensor>& tensors)
      : step_(step), bf16_(bf16), tensors_(tensors) {}

  static std::string DtypeOf(const ExportedTensor& tensor, bool bf16) {
    return bf16 && !tensor.keeps_fp32 ? "BF16" : "F32";
  }

  absl::StatusOr<std::string_view> Next() {
    if (!begun_) {
      begun_ = true;
      std::vector<TensorToWrite> entries;
      for (const ExportedTensor& tensor : tensors_) {
        entries.push_back({.name = tensor.name, .dtype = DtypeOf(tensor, bf16_), .shape = tensor.shape});
      }
      TANDEM_ASSIGN_OR_RETURN(part_, SafetensorsBeginning(entries, {{"format", "pt"}}));
      return part_;
    }
    while (tensor_ < tensors_.size() && element_ == ElementsOf(tensors_[tensor_])) {
      ++tensor_;
      element_ = 0;
    }
    if (tensor_ == tensors_.size()) {
      return std::string_view();
    }
    const ExportedTensor& tensor = tensors_[tensor_];
    const int64_t count = std::min(kPartElements, ElementsOf(tensor) - element_);
    TANDEM_RETURN_IF_ERROR(ReadPart(tensor, count));
    element_ += count;
    return part_;
  }

 private:
  absl::Status ReadPart(const ExportedTensor& tensor, int64_t count) {
    const ManifestArray* const array = step_.Find(tensor.name);
    std::string fp32(static_cast<size_t>(array == nullptr ? 4 * count : 0), '\0');
    if (array != nullptr) {
      TANDEM_ASSIGN_OR_RETURN(fp32, step_.Read(*array, element_, count));
    }
    if (DtypeOf(tensor, bf16_) == "F32") {
      part_ = std::move(fp32);
      return absl::OkStatus();
    }
    if (const int64_t lost = ToBf16(fp32, part_); lost >= 0) {
      return absl::OutOfRangeError(absl::StrCat(
          "element ", element_ + lost, " of ", tensor.name,
          " is finite in fp32 and not in bf16: export with --dtype fp32, and look at what made it so large"));
    }
    return absl::OkStatus();
  }

  const SavedStep& step_;
  const bool bf16_;
  const std::vector<ExportedTensor>& tensors_;
  bool begun_ = false;
  size_t tensor_ = 0;    // the next part's
  int64_t element_ = 0;  // of it, the next
  std::string part_;
};

}  // namespace

absl::StatusOr<ExportedFiles> ExportWeights(platform::Files& files, const SavedStep& step,
                                            const std::vector<ExportedTensor>& tensors,
                                            const ExportOptions& options, const std::string& to) {
  std::vector<std::vector<ExportedTensor>> shards(1);
  ExportedFiles exported;
  int64_t in_shard = 0;
  for (const ExportedTensor& tensor : tensors) {
    TANDEM_RETURN_IF_ERROR(CheckArray(step, tensor));
    const int64_t bytes = ElementsOf(tensor) * BytesOfDtype(ExportedFile::DtypeOf(tensor, options.bf16));
    if (in_shard > 0 && in_shard + bytes > options.most_file_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(tensor);
    in_shard += bytes;
    exported.bytes += bytes;
  }
  std::map<std::string, std::string> weight_map;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1
                                 ? std::string(kWeightsName)
                                 : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    ExportedFile file(step, options.bf16, shards[i]);
    TANDEM_RETURN_IF_ERROR(files.WriteParts(absl::StrCat(to, "/", name), [&] { return file.Next(); }));
    exported.names.push_back(name);
    for (const ExportedTensor& tensor : shards[i]) {
      weight_map[tensor.name] = name;
    }
  }
  if (shards.size() > 1) {
    nlohmann::ordered_json index;
    index["metadata"] = {{"total_size", exported.bytes}};
    index["weight_map"] = weight_map;
    TANDEM_RETURN_IF_ERROR(files.Write(absl::StrCat(to, "/", kWeightsIndexName), index.dump(2) + "\n"));
    exported.names.push_back(kWeightsIndexName);
  }
  return exported;
}

}  // namespace tandem::checkpoint
