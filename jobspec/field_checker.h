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

// A spec under validation: the spec as submitted and resolved, the violations so far, and the checks of
// single fields, whatever the others hold. Validate's checks between fields build on it.
class FieldChecker {
 public:
  // No list of it has more than kMostListEntries. `submitted` and `unusable` outlive the object. Nothing is
  // said about fields at or below an unusable path.
  FieldChecker(const v1::JobSpec& submitted, const std::vector<std::string>& unusable);

  // Unknown fields, enum numbers, odd text; what is not built, out of range, or missing.
  void CheckFields();

  // One complaint a field: the first.
  void Refuse(std::string_view path, std::string_view value, std::string_view allowed,
              std::string_view remedy);

  // Refuses the value that stands at `path`. Without `allowed`: what AllowedText says of every job.
  void Refuse(std::string_view path, std::string_view allowed, std::string_view remedy);
  void Refuse(std::string_view path, std::string_view remedy);

  // Refuses the value that stands at `path`, where this job may have none. `remedy` is why, and what to do.
  void Forbid(std::string_view path, std::string_view remedy);

  bool Has(std::string_view path) const;

  // Whether nothing has been said about these fields, so that what follows from them means something.
  bool IsOk(std::initializer_list<std::string_view> paths) const;

  // Whether nothing has been said about the block at `path`, and about no field in it.
  bool IsOkWithin(std::string_view path) const;

  // Present and fine.
  bool Usable(std::initializer_list<std::string_view> paths) const;

  // Whether the user gave it. What a preset or a default brought is nothing that a violation should be about:
  // the fields that made it wrong are.
  bool IsWritten(std::string_view path) const;

  // Who says what stands at `path`: "" where the user does, else " (of preset llama-tiny)" or " (the
  // default)".
  std::string Origin(std::string_view path) const;

  // "num_experts 8 (the default)": the key, what stands there, and its Origin.
  std::string Named(std::string_view path) const;

  const v1::JobSpec& submitted() const { return submitted_; }
  const v1::JobSpec& spec() const { return spec_; }  // resolved

  // The resolved spec and the violations, in the order of the proto; the first kMaxViolations, and one that
  // says that there are more. Last.
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
  std::set<std::string, std::less<>> refused_;  // their paths
};

}  // namespace tandem::jobspec
