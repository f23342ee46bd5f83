// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/message.h"
#include "jobspec/jobspec.h"

namespace tandem::jobspec {

// A spec under validation: the submitted and the resolved spec, the violations so far, and the checks of
// single fields. The checks of checks.h, which involve several fields, use it.
class FieldChecker {
 public:
  // Requires that no list in `submitted` has more than kMostListEntries. `submitted` and `unusable` must
  // outlive this object. Fields at or below an unusable path get no violations.
  FieldChecker(const v1::JobSpec& submitted, const std::vector<std::string>& unusable);

  // Refuses unknown fields, unknown enum numbers, strange characters in text, values that are not implemented
  // or out of range, and missing fields.
  void CheckFields();

  // Adds a violation, unless the field has one already.
  void Refuse(std::string_view path, std::string_view value, std::string_view allowed,
              std::string_view remedy);

  // Refuses the value at `path`. If `allowed` is not given, it is AllowedText (field_rules.h), which is the
  // same for every job.
  void Refuse(std::string_view path, std::string_view allowed, std::string_view remedy);
  void Refuse(std::string_view path, std::string_view remedy);

  // Refuses the value at `path`, because this job may not have one. `remedy` says why, and what to do.
  void Forbid(std::string_view path, std::string_view remedy);

  bool Has(std::string_view path) const;

  // Whether these fields have no violation, so that checks which depend on them make sense.
  bool IsOk(std::initializer_list<std::string_view> paths) const;

  // Whether the block at `path` and all fields in it have no violation.
  bool IsOkWithin(std::string_view path) const;

  // Whether the fields are present and have no violation.
  bool Usable(std::initializer_list<std::string_view> paths) const;

  // Whether the user wrote the field. If a preset's or a default value does not fit a field that the user
  // wrote, the violation should be about the latter.
  bool IsWritten(std::string_view path) const;

  // The origin of the value at `path`, to be appended to it in a message: "" if the user wrote it, otherwise
  // " (of preset llama-tiny)" or " (the default)".
  std::string Origin(std::string_view path) const;

  // The key, its value, and its Origin: "num_experts 8 (the default)".
  std::string Named(std::string_view path) const;

  const v1::JobSpec& submitted() const { return submitted_; }
  const v1::JobSpec& spec() const { return spec_; }  // the resolved spec

  // Returns the resolved spec and the violations, in the order of the proto. If there are more than
  // kMaxViolations, one more violation replaces the rest. Must be called last.
  Checked Take();

 private:
  void CheckMessage(const google::protobuf::Message& message, const std::string& path);
  void CheckText(const std::string& path, const std::string& text);
  void CheckBuilt();
  void CheckRanges();

  const v1::JobSpec& submitted_;
  v1::JobSpec spec_;
  const std::vector<std::string>& unusable_;
  std::vector<v1::Violation> violations_;
  std::set<std::string, std::less<>> refused_;  // the paths of refused fields
};

}  // namespace tandem::jobspec
