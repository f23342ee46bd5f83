// SPDX-License-Identifier: Apache-2.0
#include "controller/http/query.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tandem::controller {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kMostBytes = 4096;

// %41 and + as forms have them. Nothing where it is not so, or no UTF-8 text without control characters.
std::optional<std::string> Decoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const absl::string_view digits = text.substr(i + 1, 2);
      const auto is_hex = [](char d) { return absl::ascii_isxdigit(static_cast<unsigned char>(d)); };
      if (digits.size() != 2 || !is_hex(digits[0]) || !is_hex(digits[1])) {
        return std::nullopt;
      }
      c = absl::HexStringToBytes(digits)[0];
      i += 2;
    } else if (c == '+') {
      c = ' ';
    }
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      return std::nullopt;
    }
    out.push_back(c);
  }
  return out;
}

// False where the text is not a value of the field.
bool Set(const std::string& text, const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const auto set = [&](auto value, auto single, auto repeated) {
    field.is_repeated() ? (reflection.*repeated)(&message, &field, value)
                        : (reflection.*single)(&message, &field, value);
    return true;
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return set(text, &Reflection::SetString, &Reflection::AddString);
    case FieldDescriptor::CPPTYPE_INT32: {
      int32_t value = 0;
      return absl::SimpleAtoi(text, &value) && set(value, &Reflection::SetInt32, &Reflection::AddInt32);
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      int64_t value = 0;
      return absl::SimpleAtoi(text, &value) && set(value, &Reflection::SetInt64, &Reflection::AddInt64);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return (text == "true" || text == "false") &&
             set(text == "true", &Reflection::SetBool, &Reflection::AddBool);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* const value = field.enum_type()->FindValueByName(text);
      return value != nullptr && set(value, &Reflection::SetEnum, &Reflection::AddEnum);
    }
    default:
      return false;
  }
}

}  // namespace

absl::Status FillFromQuery(const std::string& query, Message& message) {
  if (query.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the query has ", query.size(), " bytes; at most ", kMostBytes));
  }
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const absl::string_view name = sides.first;
    const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(std::string(name));
    if (field == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(name), "\" is not a field of ",
                                                     message.GetDescriptor()->name()));
    }
    const std::optional<std::string> value = Decoded(sides.second);
    if (!value.has_value() || !Set(*value, *field, message)) {
      return absl::InvalidArgumentError(absl::StrCat(field->name(), ": \"", absl::CHexEscape(sides.second),
                                                     "\" is not of type ", field->type_name()));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::controller
