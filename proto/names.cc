// SPDX-License-Identifier: Apache-2.0
#include "proto/names.h"

#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tandem::proto {

std::string ValueName(const google::protobuf::EnumDescriptor& type, int number) {
  const google::protobuf::EnumValueDescriptor* const value = type.FindValueByNumber(number);
  if (value == nullptr) {
    return absl::StrCat(number);
  }
  // Every type's first value is PREFIX_UNSPECIFIED.
  const size_t prefix = type.value(0)->name().size() - std::string_view("UNSPECIFIED").size();
  return value->name().substr(prefix);
}

std::string LowerName(const google::protobuf::EnumDescriptor& type, int number) {
  return absl::AsciiStrToLower(ValueName(type, number));
}

}  // namespace tandem::proto
