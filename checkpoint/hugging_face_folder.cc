// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hugging_face_folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/shown_text.h"
#include "platform/status_macros.h"
#include "platform/xxh3.h"

namespace tandem::checkpoint {
namespace {

using IndexJson = nlohmann::json;  // not ordered_json, which would compare each of many names with all others

constexpr int64_t kMostIndexBytes = int64_t{256} << 20;
constexpr size_t kMostProblems = 20;
constexpr std::string_view kLfsPointer = "version https://git-lfs";
constexpr int64_t kSampleBytes = int64_t{16} << 10;
constexpr int64_t kSamples = 4;
constexpr size_t kShownBytes = 200;

std::string Named(const std::string& name) { return platform::Shown(name, kShownBytes); }

bool IsShardName(std::string_view name) {
  return name.starts_with("model-") && name.ends_with(".safetensors");
}

class FolderReader {
 public:
  FolderReader(platform::Files& files, const std::string& path) : files_(files), path_(path) {}

  absl::StatusOr<HuggingFaceFolder> Read() {
    folder_.path = path_;
    const absl::StatusOr<std::vector<std::string>> names = files_.List(path_);
    if (!names.ok()) {
      return names.status();
    }
    names_.insert(names->begin(), names->end());
    CheckDownloads();
    TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> config, ReadText(kConfigName, kMostConfigBytes));
    digest_.Add(config.value_or(""));
    if (config.has_value()) {
      ReadConfig(*config);
    }
    TANDEM_RETURN_IF_ERROR(ListFiles());
    for (size_t i = 0; i < folder_.files.size(); ++i) {
      TANDEM_RETURN_IF_ERROR(ReadFile(static_cast<int>(i)));
    }
    if (indexed_) {
      CompareWithIndex();
    }
    AddPrefix();
    if (!problems_.empty()) {
      return Wrong();
    }
    folder_.digest = digest_.Get();
    return std::move(folder_);
  }

 private:
  void Problem(std::string text) { problems_.push_back(std::move(text)); }

  absl::Status Wrong() {
    if (problems_.size() > kMostProblems) {
      const size_t more = problems_.size() - kMostProblems;
      problems_.resize(kMostProblems);
      problems_.push_back(absl::StrCat(more, " more problems"));
    }
    return absl::InvalidArgumentError(absl::StrJoin(problems_, "; "));
  }

  std::string PathOf(const std::string& name) const { return absl::StrCat(path_, "/", name); }

  void CheckDownloads() {
    constexpr char kDownloads[] = ".cache/huggingface/download/";  // of `hf download --local-dir`
    const auto check = [this](const char* folder, const auto& names) {
      for (const std::string& name : names) {
        if (name.ends_with(".incomplete")) {
          Problem(absl::StrCat(folder, Named(name), " is an unfinished download: download the model again"));
        }
      }
    };
    check("", names_);
    if (const absl::StatusOr<std::vector<std::string>> names = files_.List(PathOf(kDownloads)); names.ok()) {
      check(kDownloads, *names);
    }
  }

  // Returns the size of a file; nullopt if the file has a problem, which is added to problems_.
  absl::StatusOr<std::optional<int64_t>> SizeOf(const std::string& name) {
    const absl::StatusOr<int64_t> bytes = files_.Size(PathOf(name));
    if (bytes.ok()) {
      return std::optional(*bytes);
    }
    if (!absl::IsNotFound(bytes.status()) && !absl::IsInvalidArgument(bytes.status()) &&
        !absl::IsPermissionDenied(bytes.status())) {
      return bytes.status();
    }
    std::error_code error;
    if (absl::IsNotFound(bytes.status()) && std::filesystem::is_symlink(PathOf(name), error)) {
      Problem(absl::StrCat(Named(name), " is a link to ",
                           Named(std::filesystem::read_symlink(PathOf(name), error).string()),
                           ", which does not exist: download the model again"));
    } else if (absl::IsNotFound(bytes.status())) {
      Problem(absl::StrCat(Named(name), " is missing: is the download complete?"));
    } else {
      Problem(std::string(bytes.status().message()));
    }
    return std::optional<int64_t>();
  }

  absl::StatusOr<bool> IsLfsPointer(const std::string& name) {
    TANDEM_ASSIGN_OR_RETURN(const std::string begin,
                            files_.ReadRange(PathOf(name), 0, static_cast<int64_t>(kLfsPointer.size())));
    if (begin != kLfsPointer) {
      return false;
    }
    Problem(absl::StrCat(Named(name),
                         " is a Git LFS pointer in place of the file: run git lfs pull in the "
                         "folder, or download the model with hf download"));
    return true;
  }

  // Reads a text file; nullopt if the file has a problem, which is added to problems_.
  absl::StatusOr<std::optional<std::string>> ReadText(const std::string& name, int64_t most_bytes) {
    TANDEM_ASSIGN_OR_RETURN(const std::optional<int64_t> bytes, SizeOf(name));
    if (!bytes.has_value()) {
      return std::optional<std::string>();
    }
    if (*bytes > most_bytes) {
      Problem(absl::StrCat(name, " has ", *bytes, " bytes, more than the ", most_bytes, " it may have"));
      return std::optional<std::string>();
    }
    TANDEM_ASSIGN_OR_RETURN(const bool is_pointer, IsLfsPointer(name));
    if (is_pointer) {
      return std::optional<std::string>();
    }
    TANDEM_ASSIGN_OR_RETURN(std::string text, files_.Read(PathOf(name)));
    return std::optional(std::move(text));
  }

  // Reads only the number of predicting layers; jobspec reads the rest of the file.
  void ReadConfig(const std::string& text) {
    const absl::StatusOr<IndexJson> config = ParseConfig<IndexJson>(text);
    if (!config.ok()) {
      Problem(absl::StrCat(kConfigName, ": ", config.status().message()));
      return;
    }
    for (const char* const key : {"num_mtp_layers", "num_nextn_predict_layers"}) {
      const IndexJson layers = config->value(key, IndexJson());
      if (layers.is_number_unsigned() && layers <= 1'000'000) {
        folder_.predicting_layers = layers.get<int64_t>();
      } else if (!layers.is_null()) {
        Problem(absl::StrCat(kConfigName, ": ", key, " is not a number of layers"));
      }
    }
  }

  // Sets folder_.files, without sizes, and weight_map_ if there is an index.
  absl::Status ListFiles() {
    indexed_ = names_.contains(kWeightsIndexName);
    if (indexed_) {
      TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                              ReadText(kWeightsIndexName, kMostIndexBytes));
      if (text.has_value()) {
        ReadIndex(*text);
      }
      if (names_.contains(kWeightsName)) {
        Problem(absl::StrCat("both ", kWeightsName, " and ", kWeightsIndexName,
                             " are there: remove the one that is not of this model"));
      }
    } else if (names_.contains(kWeightsName)) {
      folder_.files.push_back({.name = kWeightsName});
    } else {
      ReportNoWeights();
    }
    return absl::OkStatus();
  }

  void ReadIndex(const std::string& text) {
    // The callback bounds the depth: the parser itself keeps a stack, but destroying a deep value recurses.
    const IndexJson index = IndexJson::parse(
        text, [](int depth, IndexJson::parse_event_t, IndexJson&) { return depth < 8; },
        /*allow_exceptions=*/false);
    const auto map = index.is_object() ? index.find("weight_map") : index.end();
    if (!index.is_object() || map == index.end() || !map->is_object()) {
      Problem(absl::StrCat(kWeightsIndexName, " is not JSON with a weight_map"));
      return;
    }
    std::set<std::string> names;
    for (const auto& [tensor, file] : map->items()) {
      const std::string name = file.is_string() ? file.get<std::string>() : "";
      if (name.empty() || name[0] == '.' || absl::StrContains(name, "/") ||
          name.find('\0') != std::string::npos) {
        Problem(absl::StrCat(kWeightsIndexName, ": ", Named(tensor), " lies in ",
                             Named(file.dump(-1, ' ', true, IndexJson::error_handler_t::replace)),
                             ", which is not the name of a file in the folder"));
        continue;
      }
      weight_map_.emplace(tensor, name);
      names.insert(name);
    }
    for (const std::string& name : names) {
      folder_.files.push_back({.name = name});
    }
    for (const std::string& name : names_) {
      if (IsShardName(name) && !names.contains(name)) {
        Problem(absl::StrCat(Named(name), " is not in ", kWeightsIndexName,
                             ": remove the one that is not of this model"));
      }
    }
  }

  void ReportNoWeights() {
    const auto is_pickle = [](const std::string& name) {
      return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
    };
    if (std::any_of(names_.begin(), names_.end(), IsShardName)) {
      Problem(absl::StrCat(kWeightsIndexName, " is missing: is the download complete?"));
    } else if (const auto pickle = std::find_if(names_.begin(), names_.end(), is_pickle);
               pickle != names_.end()) {
      Problem(absl::StrCat("the weights are not safetensors (", Named(*pickle),
                           "): load the model in transformers and save it with save_pretrained"));
    } else {
      Problem(absl::StrCat("there is neither ", kWeightsName, " nor ", kWeightsIndexName,
                           ": is this the folder of a model, and the download complete?"));
    }
  }

  absl::Status ReadFile(int index) {
    WeightsFile& file = folder_.files[static_cast<size_t>(index)];
    TANDEM_ASSIGN_OR_RETURN(const std::optional<int64_t> bytes, SizeOf(file.name));
    if (!bytes.has_value()) {
      return absl::OkStatus();
    }
    file.bytes = *bytes;
    TANDEM_ASSIGN_OR_RETURN(const bool is_pointer, IsLfsPointer(file.name));
    if (is_pointer) {
      return absl::OkStatus();
    }
    const std::string path = PathOf(file.name);
    TANDEM_ASSIGN_OR_RETURN(const std::string length, files_.ReadRange(path, 0, kSafetensorsLengthBytes));
    const absl::StatusOr<int64_t> header_bytes = SafetensorsHeaderBytes(length, file.bytes);
    if (!header_bytes.ok()) {
      Problem(absl::StrCat(Named(file.name), ": ", header_bytes.status().message()));
      return absl::OkStatus();
    }
    TANDEM_ASSIGN_OR_RETURN(const std::string begin, files_.ReadRange(path, 0, *header_bytes));
    absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(begin, file.bytes);
    if (!header.ok()) {
      Problem(absl::StrCat(Named(file.name), ": ", header.status().message(), "; is the download complete?"));
      return absl::OkStatus();
    }
    for (auto& [name, place] : header->tensors) {
      const auto [found, is_new] =
          folder_.tensors.emplace(name, StoredTensor{.file = index, .place = std::move(place)});
      if (!is_new) {
        Problem(absl::StrCat("tensor ", Named(name), " is in ",
                             Named(folder_.files[static_cast<size_t>(found->second.file)].name), " and in ",
                             Named(file.name)));
      }
    }
    digest_.Add(absl::StrCat(file.name, "\n", file.bytes, "\n"));
    digest_.Add(begin);
    return AddSamples(path, *header_bytes, file.bytes);
  }

  absl::Status AddSamples(const std::string& path, int64_t begin, int64_t end) {
    const int64_t last = std::max(begin, end - kSampleBytes);
    for (int64_t i = 0; i < kSamples; ++i) {
      TANDEM_ASSIGN_OR_RETURN(
          const std::string sample,
          files_.ReadRange(path, begin + (last - begin) / (kSamples - 1) * i, kSampleBytes));
      digest_.Add(sample);
    }
    return absl::OkStatus();
  }

  void CompareWithIndex() {
    for (const auto& [name, file] : weight_map_) {
      const auto found = folder_.tensors.find(name);
      if (found == folder_.tensors.end()) {
        // A problem of its file, if there is one, says more.
        if (problems_.empty() || !HasProblem(file)) {
          Problem(absl::StrCat("tensor ", Named(name), " is not in ", Named(file), ", where ",
                               kWeightsIndexName, " has it"));
        }
      } else if (const std::string& in = folder_.files[static_cast<size_t>(found->second.file)].name;
                 in != file) {
        Problem(absl::StrCat("tensor ", Named(name), " is in ", Named(in), ", and in ", Named(file), " by ",
                             kWeightsIndexName));
      }
    }
    for (const auto& [name, tensor] : folder_.tensors) {
      if (!weight_map_.contains(name)) {
        Problem(absl::StrCat("tensor ", Named(name), " of ",
                             Named(folder_.files[static_cast<size_t>(tensor.file)].name), " is not in ",
                             kWeightsIndexName));
      }
    }
  }

  bool HasProblem(const std::string& file) const {
    return std::any_of(problems_.begin(), problems_.end(),
                       [&](const std::string& problem) { return problem.starts_with(Named(file)); });
  }

  void AddPrefix() {
    bool has_backbone = false;
    bool has_model = false;
    bool has_mixers = false;
    for (const auto& [name, tensor] : folder_.tensors) {
      has_backbone |= name.starts_with("backbone.");
      has_model |= name.starts_with(kModel);
      has_mixers |= name.find(".mixer.") != name.npos;
    }
    if (has_backbone || (has_model && !has_mixers)) {
      return;
    }
    std::map<std::string, StoredTensor> renamed;
    for (const auto& [name, tensor] : folder_.tensors) {
      const std::string own = has_model && name.starts_with(kModel) ? name.substr(sizeof(kModel) - 1) : name;
      const std::string full =
          name.starts_with("lm_head.") ? name : absl::StrCat(has_mixers ? "backbone." : kModel, own);
      if (!renamed.emplace(full, tensor).second) {
        Problem(
            absl::StrCat("tensor ", Named(own), " is there with \"model.\" before its name, and without"));
      }
    }
    folder_.tensors = std::move(renamed);
  }

  static constexpr char kModel[] = "model.";
  platform::Files& files_;
  const std::string& path_;
  std::set<std::string> names_;
  bool indexed_ = false;
  std::map<std::string, std::string> weight_map_;  // tensor → file
  HuggingFaceFolder folder_;
  platform::Xxh3 digest_;
  std::vector<std::string> problems_;
};

}  // namespace

absl::StatusOr<HuggingFaceFolder> ReadHuggingFaceFolder(platform::Files& files, const std::string& path) {
  return FolderReader(files, path).Read();
}

}  // namespace tandem::checkpoint
