// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_weights.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/hugging_face_folder.h"
#include "checkpoint/step_stream.h"
#include "platform/bounded_queue.h"
#include "platform/control_groups.h"
#include "platform/for_each_index.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// How much of what is written goes to the thread that writes it at a time.
constexpr size_t kBatchBytes = size_t{8} << 20;

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

// What a thread rounds at a time, and how many threads round; with more, reading and writing take longer.
constexpr size_t kRoundedElements = size_t{1} << 17;
constexpr int kMostRoundingThreads = 4;

// Sets `to` to the nearest bf16 of little-endian fp32, ties to even. The first element that has none; -1: all
// have.
int64_t RoundElements(std::string_view fp32, char* to) {
  int64_t lost = -1;
  for (size_t i = 0; i < fp32.size() / 4; ++i) {
    uint32_t bits;
    std::memcpy(&bits, fp32.data() + 4 * i, sizeof(bits));
    const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    const uint32_t rounded = is_nan ? 0x7FC00000 : bits + 0x7FFF + ((bits >> 16) & 1);
    if ((bits & 0x7F800000) != 0x7F800000 && (rounded & 0x7F800000) == 0x7F800000 && lost < 0) {
      lost = static_cast<int64_t>(i);
    }
    const auto high = static_cast<uint16_t>(rounded >> 16);
    std::memcpy(to + 2 * i, &high, sizeof(high));
  }
  return lost;
}

// Appends to `bf16`, by as many threads; returns what RoundElements does.
int64_t AppendBf16(std::string_view fp32, int threads, std::string& bf16) {
  const size_t begin = bf16.size();
  bf16.resize(begin + fp32.size() / 2);
  std::vector<int64_t> lost((fp32.size() / 4 + kRoundedElements - 1) / kRoundedElements);
  platform::ForEachIndex(lost.size(), threads, [&](size_t i) {
    const size_t first = i * kRoundedElements;
    lost[i] = RoundElements(fp32.substr(4 * first, 4 * kRoundedElements), bf16.data() + begin + 2 * first);
  });
  const auto found = std::find_if(lost.begin(), lost.end(), [](int64_t element) { return element >= 0; });
  return found == lost.end() ? -1 : (found - lost.begin()) * static_cast<int64_t>(kRoundedElements) + *found;
}

// A file that is to be written.
struct Layout {
  std::string name;
  std::string beginning;
  int64_t bytes = 0;
};

// Where a tensor goes.
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
  for (const ExportedTensor& tensor : tensors) {
    const std::string dtype = DtypeOf(tensor, options.bf16);
    const int64_t bytes = ElementsOf(tensor) * BytesOfDtype(dtype);
    if (in_file > 0 && in_file + bytes > options.most_file_bytes) {
      entries.emplace_back();
      in_file = 0;
    }
    plan.targets.push_back({.file = entries.size() - 1, .begin = in_file, .bf16 = dtype == "BF16"});
    entries.back().push_back({.name = tensor.name, .dtype = dtype, .shape = tensor.shape});
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

// Writes to files on a thread of its own.
class WritingThread {
 public:
  struct Batch {
    struct Piece {
      size_t file = 0;
      int64_t begin = 0;  // bytes of the file
      size_t bytes = 0;
    };
    std::vector<Piece> pieces;
    std::string bytes;  // theirs, one behind the other
  };

  // `outputs` outlive it.
  explicit WritingThread(const std::vector<std::unique_ptr<platform::OutputFile>>& outputs)
      : writer_(std::async(std::launch::async, [this, &outputs]() -> absl::Status {
          const absl::Cleanup abandon = [this] { batches_.Abandon(); };
          while (const std::optional<Batch> batch = batches_.Pop()) {
            std::string_view left = batch->bytes;
            for (const Batch::Piece& piece : batch->pieces) {
              TANDEM_RETURN_IF_ERROR(outputs[piece.file]->Write(piece.begin, left.substr(0, piece.bytes)));
              left.remove_prefix(piece.bytes);
            }
          }
          return absl::OkStatus();
        })) {}
  // Drops what is not being written.
  ~WritingThread() { batches_.Abandon(); }

  // False: a write has failed.
  bool Write(Batch batch) { return batches_.Push(std::move(batch)); }

  // Waits until all is written. Once.
  absl::Status End() {
    batches_.End();
    return writer_.get();
  }

 private:
  platform::BoundedQueue<Batch> batches_{2};
  std::future<absl::Status> writer_;  // the last: it uses the queue
};

// Makes of a step's elements what is to be written of them.
class Conversion {
 public:
  // All outlive it.
  Conversion(const std::vector<ExportedTensor>& tensors, const Plan& plan, WritingThread& writer)
      : tensors_(tensors), plan_(plan), writer_(writer) {}

  // As TakeElements, of fp32. Cancelled: a write has failed.
  absl::Status Take(size_t tensor, int64_t first, std::string_view fp32) {
    const Target& target = plan_.targets[tensor];
    const size_t begin = batch_.bytes.size();
    if (!target.bf16) {
      batch_.bytes.append(fp32);
    } else if (const int64_t element = AppendBf16(fp32, rounding_threads_, batch_.bytes); element >= 0) {
      lost_ = std::min(lost_, std::pair(tensor, first + element));
    }
    batch_.pieces.push_back({.file = target.file,
                             .begin = target.begin + first * (target.bf16 ? 2 : 4),
                             .bytes = batch_.bytes.size() - begin});
    return batch_.bytes.size() < kBatchBytes || Flush() ? absl::OkStatus()
                                                        : absl::CancelledError("a write has failed");
  }

  // Gives what is left to the thread that writes, and waits for that.
  absl::Status End() {
    static_cast<void>(Flush());  // End says why not
    TANDEM_RETURN_IF_ERROR(writer_.End());
    if (lost_ != kNone) {
      return absl::OutOfRangeError(absl::StrCat(
          "element ", lost_.second, " of ", tensors_[lost_.first].name,
          " is finite in fp32 and not in bf16: export with --dtype fp32, and look at what made it so large"));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr std::pair<size_t, int64_t> kNone = {std::numeric_limits<size_t>::max(), 0};

  bool Flush() { return writer_.Write(std::exchange(batch_, {})); }

  const std::vector<ExportedTensor>& tensors_;
  const Plan& plan_;
  WritingThread& writer_;
  const int rounding_threads_ = std::min(kMostRoundingThreads, platform::NumProcessors());
  WritingThread::Batch batch_;
  std::pair<size_t, int64_t> lost_ = kNone;  // the first tensor and element that bf16 does not have
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
  WritingThread writer(outputs);
  Conversion conversion(tensors, plan, writer);
  const absl::Status streamed =
      StreamStep(files, step, arrays, [&](size_t tensor, int64_t first, std::string_view bytes) {
        return conversion.Take(tensor, first, bytes);
      });
  if (!streamed.ok() && !absl::IsCancelled(streamed)) {
    return streamed;
  }
  TANDEM_RETURN_IF_ERROR(conversion.End());
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
      weight_map[tensors[i].name] = plan.files[plan.targets[i].file].name;
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
