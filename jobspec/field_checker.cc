// SPDX-License-Identifier: Apache-2.0
#include "jobspec/field_checker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "jobspec/field_rules.h"
#include "jobspec/presets.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Whether `path` is `block` or in it.
bool IsWithin(std::string_view path, std::string_view block) {
  return block.empty() || path == block ||
         (path.starts_with(block) && (path[block.size()] == '.' || path[block.size()] == '['));
}

// Integers beyond 53 bits are rounded, and stay beyond every limit.
double NumberOf(const FieldValue& value) {
  const google::protobuf::Reflection& reflection = *value.message->GetReflection();
  switch (value.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(*value.message, value.field);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(reflection.GetInt64(*value.message, value.field));
    default:
      return reflection.GetDouble(*value.message, value.field);
  }
}

}  // namespace

FieldChecker::FieldChecker(const v1::JobSpec& submitted, const std::vector<std::string>& unusable)
    : submitted_(submitted), spec_(Resolve(submitted)), unusable_(unusable) {}

void FieldChecker::CheckFields() {
  for (const std::string& path : UnknownFields(submitted_)) {
    Refuse(path, "an unknown field", "fields of this version",
           "the client is of another version than the controller: use one of the same version");
  }
  CheckMessage(submitted_, "");
  CheckBuilt();
  CheckRanges();
  for (const RequiredRule& rule : RequiredRules()) {
    for (const std::string& path : PathsOf(submitted_, rule.path)) {
      const bool is_in_place = path == "data.train" && (Has("data.sources") || !IsOk({"data.sources"}));
      if (!Has(path) && !is_in_place) {
        Refuse(path, rule.remedy);
      }
    }
  }
}

void FieldChecker::Refuse(std::string_view path, std::string_view value, std::string_view allowed,
                          std::string_view remedy) {
  if (IsOk({path})) {
    violations_.push_back(MakeViolation(path, value, allowed, remedy));
    refused_.insert(std::string(path));
  }
}

void FieldChecker::Refuse(std::string_view path, std::string_view allowed, std::string_view remedy) {
  const FieldValue value = FindValue(spec_, path);
  Refuse(path, value.message == nullptr ? "" : ValueText(value), allowed, remedy);
}

void FieldChecker::Refuse(std::string_view path, std::string_view remedy) {
  Refuse(path, AllowedText(path), remedy);
}

void FieldChecker::Forbid(std::string_view path, std::string_view remedy) { Refuse(path, "", remedy); }

bool FieldChecker::Has(std::string_view path) const { return FindValue(spec_, path).message != nullptr; }

bool FieldChecker::IsOk(std::initializer_list<std::string_view> paths) const {
  return std::none_of(paths.begin(), paths.end(), [&](std::string_view path) {
    return std::any_of(unusable_.begin(), unusable_.end(),
                       [&](const std::string& block) { return IsWithin(path, block); }) ||
           refused_.contains(path);
  });
}

bool FieldChecker::IsOkWithin(std::string_view path) const {
  return IsOk({path}) &&
         std::none_of(unusable_.begin(), unusable_.end(),
                      [&](const std::string& field) { return IsWithin(field, path); }) &&
         std::none_of(violations_.begin(), violations_.end(),
                      [&](const v1::Violation& violation) { return IsWithin(violation.path(), path); });
}

bool FieldChecker::Usable(std::initializer_list<std::string_view> paths) const {
  return IsOk(paths) && std::all_of(paths.begin(), paths.end(), [&](auto path) { return Has(path); });
}

bool FieldChecker::IsWritten(std::string_view path) const {
  return FindValue(submitted_, path).message != nullptr;
}

std::string FieldChecker::Origin(std::string_view path) const {
  if (IsWritten(path)) {
    return "";
  }
  const v1::Model* preset = FindPreset(submitted_.model().preset());
  if (path.starts_with("model.") && preset != nullptr) {
    v1::JobSpec of_preset;
    *of_preset.mutable_model() = *preset;
    if (FindValue(of_preset, path).message != nullptr) {
      return absl::StrCat(" (of preset ", submitted_.model().preset(), ")");
    }
  }
  return " (the default)";
}

std::string FieldChecker::Named(std::string_view path) const {
  return absl::StrCat(std::string(path.substr(path.rfind('.') + 1)), " ", ValueText(FindValue(spec_, path)),
                      Origin(path));
}

Checked FieldChecker::Take() {
  std::vector<std::pair<std::vector<int>, v1::Violation>> ordered;
  for (v1::Violation& violation : violations_) {
    std::vector<int> order = SchemaOrder(violation.path());
    ordered.emplace_back(std::move(order), std::move(violation));
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Checked checked{.resolved = std::move(spec_)};
  for (size_t i = 0; i < std::min(ordered.size(), kMaxViolations); ++i) {
    checked.violations.push_back(std::move(ordered[i].second));
  }
  if (ordered.size() > kMaxViolations) {
    checked.violations.push_back(MakeViolation(
        "", absl::StrCat("more than ", kMaxViolations, " things are wrong"), "", "mend these first"));
  }
  return checked;
}

// Whatever a peer can put in a message that no text can, beside unknown fields: enum numbers, odd text.
void FieldChecker::CheckMessage(const Message& message, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string at = JoinPath(path, field->name());
    const std::string text = ValueText({&message, field});
    if (field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        CheckMessage(reflection.GetRepeatedMessage(message, field, i), EntryPath(at, i));
      }
    } else if (field->message_type() != nullptr) {
      CheckMessage(reflection.GetMessage(message, field), at);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      if (EnumValueOf(*field->enum_type(), text) == nullptr) {
        Refuse(at, text, AllowedText(at), "the client sent a value that this version does not know");
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      CheckText(at, text);
    }
  }
}

void FieldChecker::CheckText(const std::string& path, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    char32_t character = 0;
    const int length = platform::DecodeUtf8(text, at, character);
    if (length == 0 || !platform::IsPlain(character)) {
      Refuse(path, text, AllowedText(path),
             length == 0 ? "it is not valid UTF-8" : "control and invisible characters cannot be part of it");
      return;
    }
    at += length;
  }
}

void FieldChecker::CheckBuilt() {
  for (const AbsentRule& rule : AbsentRules()) {
    if (Has(rule.path)) {
      Forbid(rule.path, rule.remedy);
    }
  }
  for (const BuiltRule& rule : BuiltRules()) {
    for (const std::string& path : PathsOf(submitted_, rule.path)) {
      // A default that follows from another field (expert_tensor) is not the user's doing.
      const FieldValue value = FindValue(submitted_, path);
      if (value.message != nullptr &&
          std::find(rule.built.begin(), rule.built.end(), ValueText(value)) == rule.built.end()) {
        Refuse(path, rule.remedy);
      }
    }
  }
}

// Presets and defaults are in range; what is not follows from a field that is refused here.
void FieldChecker::CheckRanges() {
  for (const RangeRule& rule : RangeRules()) {
    for (const std::string& path : PathsOf(submitted_, rule.path)) {
      const FieldValue value = FindValue(submitted_, path);
      if (value.message == nullptr) {
        continue;
      }
      const double number = NumberOf(value);
      if (rule.word != nullptr && number == kWord) {
        continue;
      }
      const bool low = rule.above_min ? !(number > rule.min) : !(number >= rule.min);
      const bool high = rule.below_max ? !(number < rule.max) : !(number <= rule.max);
      if (low || high) {
        Refuse(path, std::isnan(number) ? "use a number"
                     : low              ? "use a larger number"
                                        : "use a smaller number");
      }
    }
  }
}

}  // namespace tandem::jobspec
