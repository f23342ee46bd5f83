// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "jobspec/checks.h"
#include "jobspec/jobspec.h"

namespace tandem::jobspec {
namespace {

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

}  // namespace tandem::jobspec
