// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load_hugging_face.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/work_together.h"
#include "comm/communicator.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// exponent: the bits of the exponent, all set.
template <typename Bits>
bool AllFinite(const std::string& part, Bits exponent) {
  Bits any = 0;
  for (size_t i = 0; i + sizeof(Bits) <= part.size(); i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, part.data() + i, sizeof(bits));
    any |= static_cast<Bits>((bits & exponent) == exponent);
  }
  return any == 0;
}

bool AreFinite(const std::string& part, const std::string& dtype) {
  return dtype == "F32"    ? AllFinite<uint32_t>(part, 0x7F800000)
         : dtype == "BF16" ? AllFinite<uint16_t>(part, 0x7F80)
                           : AllFinite<uint16_t>(part, 0x7C00);
}

// Whether all elements are 0 or -0.
bool AreZeros(const std::string& part, const std::string& dtype) {
  const size_t size = dtype == "F32" ? 4 : 2;
  for (size_t i = 0; i < part.size(); ++i) {
    const bool has_sign = i % size == size - 1;
    if ((static_cast<unsigned char>(part[i]) & (has_sign ? 0x7F : 0xFF)) != 0) {
      return false;
    }
  }
  return true;
}

// The tensors in which one rank found a problem, by kind of problem.
using Problems = std::map<std::string, std::set<std::string>>;
constexpr char kNotFinite[] = "not finite";
constexpr char kDiffers[] = "differs";
constexpr char kNotZero[] = "not zero";

// Elements that one rank reads, and the function that takes each part of them.
struct Task {
  ElementsInFile elements;
  std::function<absl::Status(const std::string& part, int64_t begin)>
      take;  // begin: an element of `elements`
};

class WeightsReading {
 public:
  WeightsReading(platform::Files& files, const HuggingFaceFolder& folder, std::vector<Task> tasks)
      : files_(files), folder_(folder), tasks_(std::move(tasks)) {
    std::stable_sort(tasks_.begin(), tasks_.end(), [](const Task& a, const Task& b) {
      return std::pair(a.elements.file, a.elements.begin) < std::pair(b.elements.file, b.elements.begin);
    });
    for (const Task& task : tasks_) {
      total_ += task.elements.elements * BytesOfDtype(task.elements.dtype);
    }
  }

  // Reads a part, as WorkTogether requires.
  absl::StatusOr<RankProgress> Advance() {
    const int64_t until = bytes_ + kMeetingBytes;
    while (next_ < tasks_.size() && bytes_ < until) {
      const Task& task = tasks_[next_];
      const ElementsInFile& of = task.elements;
      const int64_t size = BytesOfDtype(of.dtype);
      const int64_t count = std::min(of.elements - element_, platform::kFilePartBytes / size);
      if (count > 0) {
        TANDEM_ASSIGN_OR_RETURN(const std::string part, ReadElements(files_, folder_, of, element_, count));
        TANDEM_RETURN_IF_ERROR(task.take(part, element_));
      }
      element_ += count;
      bytes_ += count * size;
      if (element_ == of.elements) {
        ++next_;
        element_ = 0;
      }
    }
    return RankProgress{.done = next_ == tasks_.size(), .amount = bytes_, .total = total_};
  }

  // Reads elements [begin, begin + count) of `of`.
  static absl::StatusOr<std::string> ReadElements(platform::Files& files, const HuggingFaceFolder& folder,
                                                  const ElementsInFile& of, int64_t begin, int64_t count) {
    const int64_t size = BytesOfDtype(of.dtype);
    const WeightsFile& file = folder.files[static_cast<size_t>(of.file)];
    TANDEM_ASSIGN_OR_RETURN(std::string part, files.ReadRange(absl::StrCat(folder.path, "/", file.name),
                                                              of.begin + begin * size, count * size));
    if (static_cast<int64_t>(part.size()) != count * size) {
      return absl::UnavailableError(
          absl::StrCat(file.name, " has become shorter than the ", file.bytes, " bytes that it had"));
    }
    return part;
  }

 private:
  platform::Files& files_;
  const HuggingFaceFolder& folder_;
  std::vector<Task> tasks_;
  size_t next_ = 0;
  int64_t element_ = 0;  // the next element of the next task
  int64_t bytes_ = 0;
  int64_t total_ = 0;
};

class WeightsLoader {
 public:
  WeightsLoader(platform::Files& files, comm::Communicator& comm, const HuggingFaceFolder& folder,
                const StoredWeights& weights)
      : files_(files), comm_(comm), folder_(folder), weights_(weights) {}

  std::string Load(const std::vector<Shard>& shards, const OnWorkProgress& on_progress) {
    for (const Shard& shard : shards) {
      AddShard(shard);
    }
    for (const StoredWeights::Copy& copy : weights_.copies) {
      AddCopy(copy);
    }
    for (const auto& [name, elements] : weights_.zeros) {
      AddCheck(name, elements, kNotZero, AreZeros);
    }
    WeightsReading reading(files_, folder_, std::move(tasks_));
    const absl::Status read = WorkTogether(
        comm_, folder_.path, [&] { return reading.Advance(); }, on_progress);
    if (!read.ok()) {
      throw CheckpointError(absl::StrCat("weights ", folder_.path, ": ", read.message()));
    }
    return TextOf(TogetherProblems());
  }

 private:
  void AddShard(const Shard& shard) {
    const auto found = weights_.tensors.find(shard.name);
    if (found == weights_.tensors.end() || !IsPart(shard) ||
        found->second.elements != fsdp::NumElements(shard.shape)) {
      throw std::logic_error("shard " + shard.name + " is not one of the weights");
    }
    for (const fsdp::CommonRun& run :
         fsdp::CommonRuns(shard.shape, /*a=*/{}, {.begin = 0, .end = found->second.elements}, shard.slice,
                          ElementsOf(shard))) {
      ElementsInFile own = found->second;
      own.begin += run.a * BytesOfDtype(own.dtype);
      own.elements = run.elements;
      const int64_t first = run.b - shard.begin;
      tasks_.push_back(
          {.elements = own, .take = [this, own, first, &shard](const std::string& part, int64_t begin) {
             if (!AreFinite(part, own.dtype)) {
               problems_[kNotFinite].insert(absl::StrCat(shard.name, own.dtype == "F16" ? ", of fp16" : ""));
             }
             const auto count = static_cast<int64_t>(part.size()) / BytesOfDtype(own.dtype);
             WriteConverted(part, own.dtype, shard.data.Part(first + begin, count));
             return absl::OkStatus();
           }});
    }
  }

  // Returns this rank's share of elements that the ranks check together.
  ElementsInFile ShareOf(ElementsInFile elements) const {
    const int64_t begin = elements.elements * comm_.rank() / comm_.size();
    const int64_t end = elements.elements * (comm_.rank() + 1) / comm_.size();
    elements.begin += begin * BytesOfDtype(elements.dtype);
    elements.elements = end - begin;
    return elements;
  }

  void AddCheck(const std::string& name, const ElementsInFile& elements, const char* kind,
                bool (*is_good)(const std::string& part, const std::string& dtype)) {
    const ElementsInFile own = ShareOf(elements);
    tasks_.push_back(
        {.elements = own, .take = [this, own, name, kind, is_good](const std::string& part, int64_t) {
           if (!is_good(part, own.dtype)) {
             problems_[kind].insert(name);
           }
           return absl::OkStatus();
         }});
  }

  void AddCopy(const StoredWeights::Copy& copy) {
    const std::string text = absl::StrCat(copy.name, " and ", copy.of_name);
    if (copy.copy.dtype != copy.of.dtype) {
      problems_[kDiffers].insert(text);
      return;
    }
    const ElementsInFile own = ShareOf(copy.copy);
    const ElementsInFile other = ShareOf(copy.of);
    tasks_.push_back(
        {.elements = own,
         .take = [this, own, other, text](const std::string& part, int64_t begin) -> absl::Status {
           const auto count = static_cast<int64_t>(part.size()) / BytesOfDtype(own.dtype);
           TANDEM_ASSIGN_OR_RETURN(const std::string same,
                                   WeightsReading::ReadElements(files_, folder_, other, begin, count));
           if (part != same) {
             problems_[kDiffers].insert(text);
           }
           return absl::OkStatus();
         }});
  }

  // Collective: returns the problems of all ranks.
  Problems TogetherProblems() {
    Problems all;
    for (const std::string& text : ExchangeTexts(comm_, nlohmann::json(problems_).dump())) {
      for (const auto& [kind, names] : nlohmann::json::parse(text).get<Problems>()) {
        all[kind].insert(names.begin(), names.end());
      }
    }
    return all;
  }

  static std::string TextOf(const Problems& problems) {
    std::vector<std::string> texts;
    const auto add = [&](const char* kind, const char* text, const char* remedy) {
      if (const auto found = problems.find(kind); found != problems.end()) {
        texts.push_back(absl::StrCat(
            text, AtMostNames(std::vector<std::string>(found->second.begin(), found->second.end())), remedy));
      }
    };
    add(kNotFinite, "values that are infinite or NaN are in ",
        ": fp16 ends at 65504, so save the model in bf16 or fp32, or use other weights");
    add(kDiffers, "config.json says tie_word_embeddings, and the bits differ of ",
        ": set it to false there and in the job, or remove the one that is not used");
    add(kNotZero, "router biases that are not 0 are in ",
        ", and this job has none: set model.moe.router_bias_update_rate to more than 0");
    return absl::StrJoin(texts, "; ");
  }

  platform::Files& files_;
  comm::Communicator& comm_;
  const HuggingFaceFolder& folder_;
  const StoredWeights& weights_;
  std::vector<Task> tasks_;
  Problems problems_;
};

}  // namespace

std::string LoadHuggingFace(platform::Files& files, comm::Communicator& comm, const HuggingFaceFolder& folder,
                            const StoredWeights& weights, const std::vector<Shard>& shards,
                            const OnWorkProgress& on_progress) {
  return WeightsLoader(files, comm, folder, weights).Load(shards, on_progress);
}

}  // namespace tandem::checkpoint
