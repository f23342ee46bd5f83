// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "jobspec/checks.h"
#include "jobspec/field_rules.h"
#include "jobspec/jobspec.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"

namespace tandem::jobspec {
namespace {

void CheckIdentity(FieldChecker& check) {
  if (check.spec().api_version() != "tandem/v1") {
    check.Refuse("api_version", "omit the key, or use a version of Tandem that knows it");
  }
  const std::string& name = check.spec().name();
  const bool characters = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (name.empty() || name.size() > 63 || !characters || name.front() == '-' || name.back() == '-') {
    check.Refuse("name", name.size() > 63
                             ? absl::StrCat("it has ", name.size(), " characters: use a shorter one")
                             : "use a name like my-job-1");
  }
}

// Lists that are longer than any may be. Looks at no entry.
std::vector<v1::Violation> LongLists(const google::protobuf::Message& message, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<v1::Violation> violations;
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    const std::string at = JoinPath(path, field->name());
    if (field->is_repeated()) {
      const int size = reflection.FieldSize(message, field);
      if (size > kMostListEntries) {
        violations.push_back(
            MakeViolation(at, absl::StrCat("a list of ", size, " entries"), AllowedText(at), "send fewer"));
      }
    } else if (field->message_type() != nullptr) {
      for (v1::Violation& violation : LongLists(reflection.GetMessage(message, field), at)) {
        violations.push_back(std::move(violation));
      }
    }
  }
  return violations;
}

// By line and column; what is not located comes last, and equals stay in the order found.
bool IsBefore(const v1::Violation& a, const v1::Violation& b) {
  const auto place = [](const v1::Violation& violation) {
    return std::make_tuple(violation.line() == 0, violation.line(), violation.column());
  };
  return place(a) < place(b);
}

// Without the sizes that a rule refuses: what is computed of a size may not end, or not fit a number.
v1::JobSpec WithoutRefusedSizes(v1::JobSpec spec, const std::vector<std::string>& unusable) {
  for (const std::string& path : unusable) {
    if (path.starts_with("model")) {
      spec.clear_model();
    } else if (path.starts_with("training")) {
      spec.mutable_training()->clear_sequence_length();
    }
  }
  return spec;
}

}  // namespace

Checked CheckExcept(const v1::JobSpec& spec, const std::vector<std::string>& unusable) {
  // What follows looks at each entry, and at some more than once.
  if (std::vector<v1::Violation> violations = LongLists(spec, ""); !violations.empty()) {
    return {.resolved = {}, .violations = std::move(violations)};
  }
  FieldChecker check(spec, unusable);
  check.CheckFields();
  CheckPaths(check);
  CheckIdentity(check);
  CheckModel(check);
  CheckData(check);
  CheckTraining(check);
  CheckBalancedRouting(check);
  CheckNames(check);
  CheckReplicas(check);
  CheckSchedule(check);
  CheckPrefetch(check);
  CheckGrid(check);
  CheckNccl(check);
  CheckBatch(check);
  CheckPrecision(check);
  CheckCheckpoint(check);
  return check.Take();
}

Checked Check(const v1::JobSpec& spec) { return CheckExcept(spec, {}); }

std::vector<v1::Violation> Validate(const v1::JobSpec& spec) { return Check(spec).violations; }

Checked CheckAll(ReadResult& read, const std::function<bool(const v1::JobSpec& resolved)>& files) {
  v1::JobSpec resolved;
  std::vector<v1::Violation> violations = read.violations;
  std::vector<std::string> unusable = read.unusable;
  const auto add = [&](std::vector<v1::Violation> more) {
    for (v1::Violation& violation : more) {
      if (std::find(unusable.begin(), unusable.end(), violation.path()) == unusable.end()) {
        unusable.push_back(violation.path());
        violations.push_back(std::move(violation));
      }
    }
  };
  const bool readable = std::find(unusable.begin(), unusable.end(), "") == unusable.end();
  if (readable) {
    // One field of a config.json does not hide the next.
    std::vector<v1::Violation> local = Localize(read.spec);
    for (const v1::Violation& violation : local) {
      // Where a config.json cannot be used, the fields are missing for that reason.
      unusable.push_back(violation.path() == "model.hugging_face" ? "model" : violation.path());
    }
    std::move(local.begin(), local.end(), std::back_inserter(violations));
    Checked checked = CheckExcept(read.spec, unusable);
    resolved = std::move(checked.resolved);
    add(std::move(checked.violations));
    if (files(resolved)) {
      add(CheckFiles(WithoutRefusedSizes(resolved, unusable)));
    }
  }
  Locate(read, violations);
  std::stable_sort(violations.begin(), violations.end(), IsBefore);
  return {.resolved = std::move(resolved), .violations = std::move(violations)};
}

std::vector<v1::Violation> CheckKnown(const v1::JobSpec& resolved) {
  std::vector<v1::Violation> violations;
  for (const std::string& path : UnknownFields(resolved)) {
    violations.push_back(
        MakeViolation(path, "an unknown field", "fields of this version",
                      "the controller is of another version than this worker: replace this one's programs"));
  }
  return violations;
}

}  // namespace tandem::jobspec
