// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
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

}  // namespace

Checked CheckExcept(const v1::JobSpec& spec, const std::vector<std::string>& unusable) {
  FieldChecker check(spec, unusable);
  CheckPattern(check);
  check.CheckFields();
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
