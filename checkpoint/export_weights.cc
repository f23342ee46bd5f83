// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "checkpoint/hugging_face_folder.h"
#include "checkpoint/saved_step.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

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

std::string DtypeOf(const ExportedTensor& tensor, bool bf16) {
  return bf16 && !tensor.keeps_fp32 ? "BF16" : "F32";
}

// The bits of the least magnitude whose nearest bf16 is infinite. Larger bits are larger magnitudes,
// infinity and NaN.
constexpr uint32_t kFirstLost = 0x7F7F8000;

// Converts little-endian fp32 to the nearest bf16, ties to even. Returns the first finite element that
// becomes infinite; -1: there is none.
int64_t RoundElements(std::string_view fp32, char* to) {
  constexpr size_t kBlock = 1024;  // a constant, so that the compiler makes vectors
  int64_t lost = -1;
  for (size_t first = 0; first < fp32.size() / 4; first += kBlock) {
    const size_t elements = std::min(kBlock, fp32.size() / 4 - first);
    std::array<uint32_t, kBlock> bits = {};
    std::memcpy(bits.data(), fp32.data() + 4 * first, 4 * elements);
    std::array<uint16_t, kBlock> high;
    uint32_t sums = 0;  // its highest bit: one of the elements is not below kFirstLost
    for (size_t i = 0; i < kBlock; ++i) {
      sums |= (bits[i] & 0x7FFFFFFF) + (0x80000000 - kFirstLost);
      high[i] = static_cast<uint16_t>((bits[i] + 0x7FFF + ((bits[i] >> 16) & 1)) >> 16);
    }
    for (size_t i = 0; (sums >> 31) != 0 && i < elements; ++i) {
      const uint32_t magnitude = bits[i] & 0x7FFFFFFF;
      if (magnitude > 0x7F800000) {
        high[i] = 0x7FC0;
      } else if (magnitude >= kFirstLost && magnitude < 0x7F800000 && lost < 0) {
        lost = static_cast<int64_t>(first + i);
      }
    }
    std::memcpy(to + 2 * first, high.data(), 2 * elements);
  }
  return lost;
}

// A file that is to be written.
struct Layout {
  std::string name;
  std::string beginning;
  int64_t bytes = 0;
};

// The place to which a tensor is written.
struct Target {
  size_t file = 0;
  int64_t begin = 0;  // bytes from the file's beginning
  bool bf16 = false;
};

struct Plan {
  std::vector<Layout> files;
  std::vector<Target> targets;  // of the tensors
  int64_t bytes = 0;            // of tensors
};

absl::StatusOr<Plan> PlanOf(const std::vector<ExportedTensor>& tensors, const ExportOptions& options) {
  Plan plan;
  std::vector<std::vector<TensorToWrite>> entries(1);
  int64_t in_file = 0;
  int64_t begin = 0;  // of the newest tensor of the file
  for (const ExportedTensor& tensor : tensors) {
    const std::string dtype = DtypeOf(tensor, options.bf16);
    const TensorSlice whole =
        tensor.part_of.value_or(TensorSlice{.name = tensor.name, .shape = tensor.shape});
    const int64_t within = whole.begin * BytesOfDtype(dtype);
    if (!entries.back().empty() && entries.back().back().name == whole.name) {
      plan.targets.push_back({.file = entries.size() - 1, .begin = begin + within, .bf16 = dtype == "BF16"});
      continue;
    }
    const int64_t bytes = fsdp::NumElements(whole.shape, {}) * BytesOfDtype(dtype);
    if (in_file > 0 && in_file + bytes > options.most_file_bytes) {
      entries.emplace_back();
      in_file = 0;
    }
    begin = in_file;
    plan.targets.push_back({.file = entries.size() - 1, .begin = begin + within, .bf16 = dtype == "BF16"});
    entries.back().push_back({.name = whole.name, .dtype = dtype, .shape = whole.shape});
    in_file += bytes;
    plan.bytes += bytes;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    Layout& file = plan.files.emplace_back();
    file.name = entries.size() == 1
                    ? std::string(kWeightsName)
                    : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, entries.size());
    TANDEM_ASSIGN_OR_RETURN(file.beginning, SafetensorsBeginning(entries[i], {{"format", "pt"}}));
    file.bytes = static_cast<int64_t>(file.beginning.size());
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    Target& target = plan.targets[i];
    target.begin += static_cast<int64_t>(plan.files[target.file].beginning.size());
    plan.files[target.file].bytes += ElementsOf(tensors[i]) * (target.bf16 ? 2 : 4);
  }
  return plan;
}

// Converts a step's elements to the types of the exported files, and writes them. Thread-safe.
class Conversion {
 public:
  // All arguments must outlive this object.
  Conversion(const std::vector<ExportedTensor>& tensors, const Plan& plan,
             const std::vector<std::unique_ptr<platform::OutputFile>>& outputs)
      : tensors_(tensors), plan_(plan), outputs_(outputs) {}

  // Takes elements as TakeElements does, all of fp32.
  absl::Status Take(size_t tensor, int64_t first, std::string_view fp32) ABSL_LOCKS_EXCLUDED(mu_) {
    const Target& target = plan_.targets[tensor];
    if (!target.bf16) {
      const absl::MutexLock lock(&mu_);
      return outputs_[target.file]->Write(target.begin + first * 4, fp32);
    }
    const auto bf16 = std::make_unique_for_overwrite<char[]>(fp32.size() / 2);
    const int64_t lost = RoundElements(fp32, bf16.get());
    const absl::MutexLock lock(&mu_);
    if (lost >= 0) {
      lost_ = std::min(lost_, std::pair(tensor, first + lost));
    }
    return outputs_[target.file]->Write(target.begin + first * 2, {bf16.get(), fp32.size() / 2});
  }

  // Returns OutOfRange with the first element that is finite in fp32 but not in bf16, if there is one.
  absl::Status CheckAllRounded() const ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (lost_ == kNone) {
      return absl::OkStatus();
    }
    return absl::OutOfRangeError(absl::StrCat(
        "element ", lost_.second, " of ", tensors_[lost_.first].name,
        " is finite in fp32 and not in bf16: export with --dtype fp32, and look at what made it so large"));
  }

 private:
  static constexpr std::pair<size_t, int64_t> kNone = {std::numeric_limits<size_t>::max(), 0};

  const std::vector<ExportedTensor>& tensors_;
  const Plan& plan_;
  mutable absl::Mutex mu_;
  const std::vector<std::unique_ptr<platform::OutputFile>>& outputs_;  // used under mu_
  std::pair<size_t, int64_t> lost_ ABSL_GUARDED_BY(mu_) = kNone;       // the first tensor and element
};

absl::Status WriteWeights(platform::Files& files, const SavedStep& step,
                          const std::vector<ExportedTensor>& tensors, const Plan& plan,
                          const std::string& to) {
  std::vector<std::unique_ptr<platform::OutputFile>> outputs;
  for (const Layout& file : plan.files) {
    TANDEM_ASSIGN_OR_RETURN(outputs.emplace_back(),
                            files.Create(absl::StrCat(to, "/", file.name), file.bytes));
  }
  std::vector<const ManifestArray*> arrays;
  for (const ExportedTensor& tensor : tensors) {
    arrays.push_back(step.Find(tensor.name));
  }
  Conversion conversion(tensors, plan, outputs);
  TANDEM_RETURN_IF_ERROR(
      StreamStep(files, step, arrays, [&](size_t tensor, int64_t first, std::string_view bytes) {
        return conversion.Take(tensor, first, bytes);
      }));
  TANDEM_RETURN_IF_ERROR(conversion.CheckAllRounded());
  for (size_t i = 0; i < outputs.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(outputs[i]->Write(0, plan.files[i].beginning));
    TANDEM_RETURN_IF_ERROR(outputs[i]->Finish());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExportedFiles> ExportWeights(platform::Files& files, const SavedStep& step,
                                            const std::vector<ExportedTensor>& tensors,
                                            const ExportOptions& options, const std::string& to) {
  for (const ExportedTensor& tensor : tensors) {
    TANDEM_RETURN_IF_ERROR(CheckArray(step, tensor));
  }
  TANDEM_ASSIGN_OR_RETURN(const Plan plan, PlanOf(tensors, options));
  TANDEM_RETURN_IF_ERROR(WriteWeights(files, step, tensors, plan, to));
  ExportedFiles exported{.bytes = plan.bytes};
  for (const Layout& file : plan.files) {
    exported.names.push_back(file.name);
  }
  if (plan.files.size() > 1) {
    std::map<std::string, std::string> weight_map;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string& name = tensors[i].part_of.has_value() ? tensors[i].part_of->name : tensors[i].name;
      weight_map[name] = plan.files[plan.targets[i].file].name;
    }
    nlohmann::ordered_json index;
    index["metadata"] = {{"total_size", plan.bytes}};
    index["weight_map"] = weight_map;
    TANDEM_RETURN_IF_ERROR(files.Write(absl::StrCat(to, "/", kWeightsIndexName), index.dump(2) + "\n"));
    exported.names.push_back(kWeightsIndexName);
  }
  return exported;
}

}  // namespace tandem::checkpoint
