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

// A spec under validation: the submitted and the resolved spec, the violations so far, and checks of single
// fields that do not depend on other fields. Validate's checks between fields use it.
class FieldChecker {
 public:
  // Requires that no list in `submitted` has more than kMostListEntries. `submitted` and `unusable` outlive
  // this object. There are no violations for fields at or below an unusable path.
  FieldChecker(const v1::JobSpec& submitted, const std::vector<std::string>& unusable);

  // Refuses unknown fields, unknown enum numbers, strange characters in text, and values that are not built,
  // out of range, or missing.
  void CheckFields();

  // Adds a violation, unless the field has one already.
  void Refuse(std::string_view path, std::string_view value, std::string_view allowed,
              std::string_view remedy);

  // Refuses the value at `path`. Without `allowed`, the violation has AllowedText, which holds for every job.
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

  // Whether the user wrote the field. A violation should not be about a value from a preset or a default, but
  // about the fields that made it wrong.
  bool IsWritten(std::string_view path) const;

  // Where the value at `path` comes from, to be appended to it: "" if the user wrote it, otherwise " (of
  // preset llama-tiny)" or " (the default)".
  std::string Origin(std::string_view path) const;

  // The key, its value, and its Origin: "num_experts 8 (the default)".
  std::string Named(std::string_view path) const;

  const v1::JobSpec& submitted() const { return submitted_; }
  const v1::JobSpec& spec() const { return spec_; }  // the resolved spec

  // The resolved spec and the violations in the order of the proto: the first kMaxViolations and, if there
  // are more, one that says so. Must be called last.
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
