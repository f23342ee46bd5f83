// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/plan_variants.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/commands/job_file.h"
#include "cli/terminal/display_text.h"
#include "jobspec/schema.h"
#include "jobspec/step_size.h"

namespace tandem::cli {
namespace {

constexpr char kAccumulation[] = "accumulation";
constexpr char kSchedule[] = "parallelism.schedule";
constexpr char kDelay[] = "+delay";  // of weight gradients

bool IsSchedule(const std::string& word) {
  return word == "sequential" || word == "overlap" || word == absl::StrCat("overlap", kDelay);
}

// Appends the paths of the fields of a block that hold one value.
void CollectPaths(const google::protobuf::Descriptor& type, const std::string& parent,
                  std::vector<std::string>& paths) {
  for (const std::string& key : jobspec::Keys(type)) {
    const google::protobuf::FieldDescriptor& field = *type.FindFieldByName(key);
    const std::string path = jobspec::JoinPath(parent, key);
    if (field.message_type() != nullptr && !field.is_repeated()) {
      CollectPaths(*field.message_type(), path, paths);
    } else if (!field.is_repeated()) {
      paths.push_back(path);
    }
  }
}

std::string LastKey(const std::string& path) { return path.substr(path.rfind('.') + 1); }

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
  std::vector<std::string> paths;
  CollectPaths(*v1::JobSpec::descriptor(), "", paths);
  std::vector<std::string> meanings;
  std::vector<std::string> last_keys = {kAccumulation};
  for (const std::string& path : paths) {
    if (path == key) {
      meanings = {path};
      break;
    }
    last_keys.push_back(LastKey(path));
    if (last_keys.back() == key) {
      meanings.push_back(path);
    }
  }
  if (meanings.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", Escape(key), "\" may be ", absl::StrJoin(meanings, " or "), "; write the whole path"));
  }
  if (meanings.empty()) {
    const std::string meant = jobspec::Closest(LastKey(key), last_keys);
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
  v1::JobSpec job = spec;
  if (path == kAccumulation) {
    int64_t rounds = 0;
    if (!absl::SimpleAtoi(value, &rounds) || rounds < 1 || rounds > 65536) {
      v1::Violation& violation = variant.violations.emplace_back();
      violation.set_path(path);
      violation.set_value(value);
      violation.set_allowed("1 to 65536 microbatches a rank");
      return variant;
    }
    job.mutable_training()->set_global_batch_size(rounds *
                                                  jobspec::SequencesOfARound(jobspec::Resolve(spec)));
  } else if (path == kSchedule && IsSchedule(value)) {
    v1::Parallelism& parallelism = *job.mutable_parallelism();
    parallelism.set_schedule(value == "sequential" ? v1::SCHEDULE_SEQUENTIAL : v1::SCHEDULE_OVERLAP);
    parallelism.clear_overlap();
    if (value != "sequential") {
      parallelism.mutable_overlap()->set_delay_weight_gradients(absl::EndsWith(value, kDelay));
    }
  } else {
    variant.violations = ApplySetting(absl::StrCat(path, "=", value), job);
  }
  if (variant.violations.empty()) {
    jobspec::Checked checked = jobspec::Check(job);
    variant.resolved = std::move(checked.resolved);
    variant.violations = std::move(checked.violations);
  }
  return variant;
}

}  // namespace tandem::cli
