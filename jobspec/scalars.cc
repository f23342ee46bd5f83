// SPDX-License-Identifier: Apache-2.0
#include "jobspec/scalars.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <set>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "jobspec/field_rules.h"
#include "jobspec/schema.h"
#include "platform/status_macros.h"

namespace tandem::jobspec {
namespace {

using absl::InvalidArgumentError;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr char kEndOfDocument[] = "data.end_of_document";
constexpr char kLeadingZero[] = "a leading zero means octal to some readers: write it without";

bool LooksLikeNumber(const std::string& text) {
  double value = 0;
  return text.find_first_not_of("0123456789+-.eE") == std::string::npos && absl::SimpleAtod(text, &value);
}

std::string WithoutSign(const std::string& text) {
  return text.substr(text.starts_with('-') || text.starts_with('+') ? 1 : 0);
}

bool HasLeadingZero(const std::string& digits) {
  return digits.size() > 1 && digits[0] == '0' && absl::ascii_isdigit(digits[1]);
}

template <typename Integer>
absl::StatusOr<Integer> ParseInteger(const std::string& text) {
  const std::string digits = WithoutSign(text);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) {
    return InvalidArgumentError(LooksLikeNumber(digits) ? "write an integer, without point or exponent"
                                                        : "write an integer in decimal digits");
  }
  if (HasLeadingZero(digits)) {
    return InvalidArgumentError(kLeadingZero);
  }
  Integer value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return InvalidArgumentError(text.front() == '-' ? "use a larger number" : "use a smaller number");
  }
  return value;
}

// Refuses NaN, infinity, and numbers that a double cannot hold.
absl::StatusOr<double> ParseDouble(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower.find("nan") != std::string::npos || lower.find("inf") != std::string::npos) {
    return InvalidArgumentError("use a finite number");
  }
  if (!LooksLikeNumber(text)) {
    return InvalidArgumentError("write a number, for instance 0.001 or 1e-3");
  }
  if (HasLeadingZero(WithoutSign(text))) {
    return InvalidArgumentError(kLeadingZero);
  }
  double value = 0;
  const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return InvalidArgumentError("a double cannot hold it");
  }
  return value;
}

// "64MiB", "2GB", "1048576".
absl::StatusOr<int64_t> ParseBytes(const std::string& text) {
  static constexpr struct {
    std::string_view suffix;
    int64_t bytes;
  } kUnits[] = {
      {"KiB", int64_t{1} << 10},
      {"MiB", int64_t{1} << 20},
      {"GiB", int64_t{1} << 30},
      {"TiB", int64_t{1} << 40},
      {"kB", 1'000},
      {"MB", 1'000'000},
      {"GB", 1'000'000'000},
      {"TB", 1'000'000'000'000},
  };
  std::string digits = text;
  int64_t unit = 1;
  for (const auto& known : kUnits) {
    if (text.ends_with(known.suffix)) {
      digits = text.substr(0, text.size() - known.suffix.size());
      unit = known.bytes;
      break;
    }
  }
  const absl::StatusOr<int64_t> count = ParseInteger<int64_t>(digits);
  if (!count.ok() || *count < 0 || *count > INT64_MAX / unit) {
    return InvalidArgumentError("write a number of bytes, for instance 64MiB or 2GB");
  }
  return *count * unit;
}

absl::StatusOr<bool> ParseBool(const std::string& text) {
  if (text == "true" || text == "false") {
    return text == "true";
  }
  const std::string lower = absl::AsciiStrToLower(text);
  return InvalidArgumentError(
      std::set<std::string>{"yes", "on", "y", "true", "1"}.contains(lower)    ? "write true"
      : std::set<std::string>{"no", "off", "n", "false", "0"}.contains(lower) ? "write false"
                                                                              : "write true or false");
}

// `but`: of the words that the field takes.
absl::Status RefuseQuoted(const std::string& text, const std::string& but) {
  return InvalidArgumentError(
      text.empty() ? "give a value" : absl::StrCat("text is not expected", but, ": remove the quotes"));
}

absl::StatusOr<int32_t> ParseWordOrInteger(const YamlNode& value, const RangeRule& rule) {
  if (value.text == rule.word) {
    return kWord;
  }
  if (value.quoted) {
    return RefuseQuoted(value.text, absl::StrCat(" but ", rule.word));
  }
  if (const std::string meant = Closest(value.text, {rule.word}); !meant.empty()) {
    return InvalidArgumentError(absl::StrCat("did you mean ", meant, "?"));
  }
  TANDEM_ASSIGN_OR_RETURN(const int32_t integer, ParseInteger<int32_t>(value.text));
  if (integer == kWord) {
    return InvalidArgumentError("use a larger number");
  }
  return integer;
}

absl::Status SetNumber(const std::string& text, const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: {
      TANDEM_ASSIGN_OR_RETURN(const bool truth, ParseBool(text));
      reflection.SetBool(&message, &field, truth);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      TANDEM_ASSIGN_OR_RETURN(const int32_t integer, ParseInteger<int32_t>(text));
      reflection.SetInt32(&message, &field, integer);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const bool bytes = field.name().ends_with("_bytes");
      TANDEM_ASSIGN_OR_RETURN(const int64_t integer, bytes ? ParseBytes(text) : ParseInteger<int64_t>(text));
      reflection.SetInt64(&message, &field, integer);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      TANDEM_ASSIGN_OR_RETURN(const uint64_t integer, ParseInteger<uint64_t>(text));
      reflection.SetUInt64(&message, &field, integer);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      TANDEM_ASSIGN_OR_RETURN(const double number, ParseDouble(text));
      reflection.SetDouble(&message, &field, number);
      return absl::OkStatus();
    }
    default:
      return InvalidArgumentError("this version cannot read this type of field");
  }
}

}  // namespace

absl::Status SetScalar(const YamlNode& value, const std::string& path, const FieldDescriptor& field,
                       Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const std::string& text = value.text;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    if (!value.quoted && (LooksLikeNumber(text) || text == "true" || text == "false")) {
      return InvalidArgumentError("text is expected: put it in quotes if it is meant");
    }
    reflection.SetString(&message, &field, text);
    return absl::OkStatus();
  }
  if (const google::protobuf::EnumDescriptor* const type = field.enum_type()) {
    const google::protobuf::EnumValueDescriptor* const known = EnumValueOf(*type, text);
    if (known == nullptr) {
      const std::string closest = Closest(text, EnumTexts(*type));
      return InvalidArgumentError(closest.empty() ? "use one of these"
                                                  : absl::StrCat("did you mean ", closest, "?"));
    }
    reflection.SetEnum(&message, &field, known);
    return absl::OkStatus();
  }
  if (path == kEndOfDocument && !text.empty() && !LooksLikeNumber(text)) {
    return InvalidArgumentError("write the byte's number: 10 for a newline, 0 for NUL");
  }
  if (const RangeRule* const rule = FindWordRule(path)) {
    TANDEM_ASSIGN_OR_RETURN(const int32_t integer, ParseWordOrInteger(value, *rule));
    reflection.SetInt32(&message, &field, integer);
    return absl::OkStatus();
  }
  return value.quoted ? RefuseQuoted(text, "") : SetNumber(text, field, message);
}

}  // namespace tandem::jobspec
