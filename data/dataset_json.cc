// SPDX-License-Identifier: Apache-2.0
#include "data/dataset_json.h"

#include <filesystem>
#include <initializer_list>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "data/file_kind.h"
#include "nlohmann/json.hpp"
#include "platform/shown_text.h"
#include "platform/status_macros.h"

namespace tandem::data {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostTextBytes = int64_t{256} << 20;
constexpr int64_t kMostTokens = int64_t{1} << 48;  // sums and products with sizes stay within 64 bits
constexpr int64_t kMostVocabulary = 1 << 24;       // as model.vocab_size
constexpr size_t kMostNameBytes = 200;             // with .bin behind it, a file's name
constexpr int kMostNesting = 64;

absl::Status Refused(const std::string& path, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(path, " must be ", allowed));
}

// Returns null also if the member is absent.
const Json& Member(const Json& object, const char* key) {
  static const Json none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

absl::StatusOr<int64_t> Integer(const Json& object, const char* key, const std::string& path, int64_t min,
                                int64_t max) {
  const Json& value = Member(object, key);
  const std::string allowed = absl::StrCat("an integer from ", min, " to ", max);
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(max) && static_cast<int64_t>(number) >= min) {
      return static_cast<int64_t>(number);
    }
  }
  return Refused(path, allowed);
}

absl::Status ReadId(const Json& tokenizer, const char* key, int64_t vocabulary, std::optional<int64_t>& id) {
  if (!Member(tokenizer, key).is_null()) {
    TANDEM_ASSIGN_OR_RETURN(id, Integer(tokenizer, key, absl::StrCat("tokenizer.", key), 0, vocabulary - 1));
  }
  return absl::OkStatus();
}

absl::Status ReadTokenizer(const Json& description, Dataset& dataset) {
  const Json& tokenizer = Member(description, "tokenizer");
  if (!tokenizer.is_object()) {
    return Refused("tokenizer", "an object");
  }
  const Json& kind = Member(tokenizer, "kind");
  if (kind == "bytes") {
    dataset.tokenizer_digest = "bytes";
  } else if (kind == "huggingface") {
    const Json& digest = Member(tokenizer, "sha256");
    if (!digest.is_string() || digest.get_ref<const std::string&>().size() != 64) {
      return Refused("tokenizer.sha256", "64 hexadecimal digits");
    }
    dataset.tokenizer_digest = digest.get<std::string>();
  } else {
    return Refused("tokenizer.kind", "huggingface or bytes");
  }
  if (const Json& path = Member(tokenizer, "path"); path.is_string()) {
    dataset.tokenizer_path = path.get<std::string>();
  }
  TANDEM_ASSIGN_OR_RETURN(dataset.vocabulary,
                          Integer(tokenizer, "vocabulary", "tokenizer.vocabulary", 1, kMostVocabulary));
  TANDEM_RETURN_IF_ERROR(ReadId(tokenizer, "bos", dataset.vocabulary, dataset.bos));
  TANDEM_RETURN_IF_ERROR(ReadId(tokenizer, "eos", dataset.vocabulary, dataset.eos));
  return ReadId(tokenizer, "pad", dataset.vocabulary, dataset.pad);
}

absl::Status ReadShards(const Json& description, Dataset& dataset) {
  const Json& shards = Member(description, "shards");
  if (!shards.is_array() || shards.empty()) {
    return Refused("shards", "a list of at least one shard");
  }
  std::set<std::string> names;
  int64_t documents = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const Json& shard = shards[i];
    const std::string path = absl::StrCat("shards[", i, "]");
    if (!shard.is_object()) {
      return Refused(path, "an object");
    }
    const Json& name = Member(shard, "name");
    const std::string text = name.is_string() ? name.get<std::string>() : "";
    if (text.empty() || text.size() > kMostNameBytes || text.front() == '.' ||
        text.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      return Refused(absl::StrCat(path, ".name"), "the name of a file in this folder, without .bin");
    }
    if (!names.insert(text).second) {
      return Refused(
          absl::StrCat(path, ".name"),
          absl::StrCat("another one than ", platform::Shown(text, 200), ", which is there already"));
    }
    Dataset::Shard& read = dataset.shards.emplace_back();
    read.name = text;
    TANDEM_ASSIGN_OR_RETURN(read.documents,
                            Integer(shard, "documents", absl::StrCat(path, ".documents"), 1, kMostTokens));
    TANDEM_ASSIGN_OR_RETURN(read.tokens,
                            Integer(shard, "tokens", absl::StrCat(path, ".tokens"), 1, kMostTokens));
    documents += read.documents;
    tokens += read.tokens;
    if (documents > kMostTokens || tokens > kMostTokens) {
      return Refused("shards", absl::StrCat("shards of at most ", kMostTokens, " tokens together"));
    }
  }
  for (const auto& [key, sum, stated] : std::initializer_list<std::tuple<const char*, int64_t, int64_t>>{
           {"documents", documents, dataset.documents}, {"tokens", tokens, dataset.tokens}}) {
    if (sum != stated) {
      return Refused(key, absl::StrCat("the sum over the shards, ", sum, ", and is ", stated));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsDataset(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) &&
         std::filesystem::exists(std::filesystem::path(path) / kDatasetFile, error);
}

absl::StatusOr<Dataset> ParseDataset(std::string_view text) {
  bool too_deep = false;
  const Json description = Json::parse(
      text.begin(), text.end(),
      [&](int depth, Json::parse_event_t, Json&) {
        too_deep = too_deep || depth > kMostNesting;
        return !too_deep;
      },
      /*allow_exceptions=*/false);
  if (description.is_discarded() || too_deep) {
    return absl::InvalidArgumentError("it is not JSON");
  }
  if (!description.is_object() || Member(description, "format") != "tandem-dataset") {
    return Refused("format", "\"tandem-dataset\"");
  }
  if (Member(description, "version") != 1) {
    return Refused("version",
                   "1, which this build reads: prepare the data with this build's tandem data prepare");
  }
  Dataset dataset;
  const Json& type = Member(description, "token_type");
  if (type != "u16" && type != "i32") {
    return Refused("token_type", "u16 or i32");
  }
  dataset.token_type = type == "u16" ? TokenType::kU16 : TokenType::kI32;
  TANDEM_RETURN_IF_ERROR(ReadTokenizer(description, dataset));
  if (dataset.token_type == TokenType::kU16 && dataset.vocabulary > 1 << 16) {
    return Refused("token_type", absl::StrCat("i32 where the vocabulary is ", dataset.vocabulary));
  }
  TANDEM_ASSIGN_OR_RETURN(dataset.documents, Integer(description, "documents", "documents", 1, kMostTokens));
  TANDEM_ASSIGN_OR_RETURN(dataset.tokens, Integer(description, "tokens", "tokens", 1, kMostTokens));
  TANDEM_RETURN_IF_ERROR(ReadShards(description, dataset));
  if (!Member(description, "counted").is_null()) {
    TANDEM_RETURN_IF_ERROR(Integer(description, "counted", "counted", 0, dataset.tokens).status());
    dataset.has_masks = true;
  }
  if (!Member(description, "never_counted").is_null()) {
    TANDEM_ASSIGN_OR_RETURN(dataset.never_counted, Integer(description, "never_counted", "never_counted", 0,
                                                           dataset.vocabulary - 1));
  }
  return dataset;
}

absl::StatusOr<Dataset> ReadDataset(const std::string& folder) {
  const std::string path = absl::StrCat(folder, folder.ends_with('/') ? "" : "/", kDatasetFile);
  TANDEM_ASSIGN_OR_RETURN(const Beginning text, ReadBeginning(path, kMostTextBytes + 1));
  if (static_cast<int64_t>(text.bytes.size()) > kMostTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(platform::Shown(path, 400),
                                                   " is too large to describe a dataset: more than ",
                                                   kMostTextBytes, " bytes"));
  }
  absl::StatusOr<Dataset> dataset = ParseDataset(text.bytes);
  if (!dataset.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(platform::Shown(path, 400), ": ", dataset.status().message()));
  }
  return dataset;
}

}  // namespace tandem::data
