// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_variants.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/message_text.h"
#include "jobspec/schema.h"
#include "jobspec/step_size.h"
#include "nlohmann/json.hpp"
#include "plan/prefetch_choice.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kAccumulation[] = "accumulation";
constexpr char kSchedule[] = "parallelism.schedule";
constexpr char kDelay[] = "+delay";  // of weight gradients

bool IsSchedule(const std::string& word) {
  return word == "sequential" || word == "overlap" || word == absl::StrCat("overlap", kDelay);
}

// Paths of the fields below a block that hold one value.
void CollectPaths(const google::protobuf::Descriptor& type, const std::string& parent,
                  std::vector<std::string>& paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    const std::string path = jobspec::JoinPath(parent, std::string(field.name()));
    if (field.is_repeated()) {
      continue;
    }
    if (field.message_type() != nullptr) {
      CollectPaths(*field.message_type(), path, paths);
    } else {
      paths.push_back(path);
    }
  }
}

std::string LastKey(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// The fields that `key` may mean: the one of that path, else all with that last key.
std::vector<std::string> Meanings(const std::string& key) {
  std::vector<std::string> paths;
  CollectPaths(*v1::JobSpec::descriptor(), "", paths);
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    if (path == key) {
      return {path};
    }
    if (LastKey(path) == key) {
      found.push_back(path);
    }
  }
  return found;
}

std::vector<std::string> LastKeys() {
  std::vector<std::string> paths;
  CollectPaths(*v1::JobSpec::descriptor(), "", paths);
  std::vector<std::string> keys = {kAccumulation};
  for (const std::string& path : paths) {
    keys.push_back(LastKey(path));
  }
  return keys;
}

// Stands for the value in the JSON text, where the value is then put as a job file has it: without quotes, so
// that the reader says of it what it says of a file.
constexpr char kPlaceholder[] = "tandem:compared-value";

std::string AsInAFile(const std::string& value) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("_.+-/", absl::string_view(&c, 1));
  });
  return plain ? value : Json(value).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<Comparison> ParseComparison(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  Comparison result;
  if (equals == std::string::npos) {
    result.values = absl::StrSplit(text, ',', absl::SkipEmpty());
    if (!result.values.empty() && std::all_of(result.values.begin(), result.values.end(), IsSchedule)) {
      result.path = kSchedule;
      return result;
    }
    result.values.clear();
  } else {
    result.values = absl::StrSplit(text.substr(equals + 1), ',', absl::SkipEmpty());
  }
  if (key.empty() || result.values.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Escape(text),
                     "\" is not a comparison; write a field and its values: prefetch=0,1,2, or "
                     "schedules: sequential,overlap,overlap+delay"));
  }
  if (key == kAccumulation) {
    result.path = key;
    return result;
  }
  const std::vector<std::string> meanings = Meanings(key);
  if (meanings.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", Escape(key), "\" may be ", absl::StrJoin(meanings, " or "), "; write the whole path"));
  }
  if (meanings.empty()) {
    const std::string meant = jobspec::Closest(LastKey(key), LastKeys());
    return absl::InvalidArgumentError(
        absl::StrCat("a job has no field \"", Escape(key), "\" with one value; ",
                     meant.empty() ? "write its path, for instance parallelism.fsdp.prefetch, or accumulation"
                                   : absl::StrCat("did you mean ", meant, "?")));
  }
  result.path = meanings[0];
  return result;
}

Variant MakeVariant(const v1::JobSpec& spec, const std::string& path, const std::string& value) {
  Variant variant{.value = value};
  Json job = Json::parse(ToJson(spec, -1));
  if (plan::ChoosesPrefetch(spec)) {  // as a file says it
    job["parallelism"]["fsdp"]["prefetch"] = "auto";
  }
  if (path == kAccumulation) {
    const v1::JobSpec resolved = jobspec::Resolve(spec);
    int64_t rounds = 0;
    if (!absl::SimpleAtoi(value, &rounds) || rounds < 1 || rounds > 65536) {
      v1::Violation violation;
      violation.set_path(path);
      violation.set_value(value);
      violation.set_allowed("1 to 65536 microbatches a rank");
      variant.violations.push_back(std::move(violation));
      return variant;
    }
    job["training"]["global_batch_size"] = rounds * jobspec::SequencesOfARound(resolved);
  } else if (path == kSchedule && IsSchedule(value)) {
    Json& parallelism = job["parallelism"];
    const bool delays = absl::EndsWith(value, kDelay);
    parallelism["schedule"] = value.substr(0, value.find('+'));
    parallelism.erase("overlap");
    if (value != "sequential") {
      parallelism["overlap"] = {{"delay_weight_gradients", delays}};
    }
  } else {
    Json* block = &job;
    for (const auto key : absl::StrSplit(path, '.')) {
      block = &(*block)[std::string(key)];
    }
    *block = kPlaceholder;
  }
  const std::string text =
      absl::StrReplaceAll(job.dump(), {{absl::StrCat("\"", kPlaceholder, "\""), AsInAFile(value)}});
  jobspec::ReadResult read = jobspec::ReadText(text, "");
  jobspec::Checked checked = jobspec::Check(read.spec);
  variant.resolved = std::move(checked.resolved);
  variant.violations = std::move(read.violations.empty() ? checked.violations : read.violations);
  for (v1::Violation& violation : variant.violations) {
    violation.clear_line();  // of a text that no user wrote
    violation.clear_column();
  }
  return variant;
}

}  // namespace tandem::cli
