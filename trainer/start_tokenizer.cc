// SPDX-License-Identifier: Apache-2.0
#include "trainer/start_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/config_json.h"
#include "data/dataset.h"
#include "platform/sha256.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kMostBytes = int64_t{256} << 20;
constexpr char kBytes[] = "bytes";  // in place of a digest, where tokens are bytes

// eos_token_id of a config.json: one id, or several.
std::vector<int64_t> EndsOfText(const std::string& config) {
  const absl::StatusOr<nlohmann::json> json = checkpoint::ParseConfig<nlohmann::json>(config);
  const nlohmann::json ids = json.ok() ? json->value("eos_token_id", nlohmann::json()) : nlohmann::json();
  std::vector<int64_t> ends;
  for (const nlohmann::json& id : ids.is_array() ? ids : nlohmann::json::array({ids})) {
    if (id.is_number_integer()) {
      ends.push_back(id.get<int64_t>());
    }
  }
  return ends;
}

}  // namespace

std::string TokenizerDifference(platform::Files& files, const jobspec::DataText& text,
                                const std::string& weights) {
  if (!data::IsDataset(text.path)) {
    return "";
  }
  const absl::StatusOr<data::Dataset> dataset = data::ReadDataset(text.path);
  if (!dataset.ok() || dataset->tokenizer_digest == kBytes) {
    return "";
  }
  const absl::StatusOr<std::string> tokenizer =
      platform::ReadAtMost(files, absl::StrCat(weights, "/tokenizer.json"), kMostBytes);
  if (tokenizer.ok() && platform::Sha256Of(*tokenizer) != dataset->tokenizer_digest) {
    return absl::StrCat(
        text.field, " was prepared with ", dataset->tokenizer_path,
        ", whose tokenizer.json is not that of checkpoint.start_from: ids may stand for other "
        "tokens than those that the weights have learned");
  }
  const absl::StatusOr<std::string> config =
      platform::ReadAtMost(files, absl::StrCat(weights, "/config.json"), kMostBytes);
  const std::vector<int64_t> ends = EndsOfText(config.value_or(""));
  if (dataset->eos.has_value() && !ends.empty() &&
      std::find(ends.begin(), ends.end(), *dataset->eos) == ends.end()) {
    return absl::StrCat("documents of ", text.field, " end with id ", *dataset->eos,
                        ", and eos_token_id of checkpoint.start_from is ", absl::StrJoin(ends, ", "),
                        ": the model learns another end of text");
  }
  return "";
}

}  // namespace tandem::trainer
