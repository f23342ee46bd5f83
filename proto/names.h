// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace tandem::proto {

// Returns the name of an enum's value without the prefix of its type: "RUNNING" for JOB_STATE_RUNNING. For a
// number that this build does not know, returns its digits.
std::string ValueName(const google::protobuf::EnumDescriptor& type, int number);

// Returns that name in lower case, as in a job file: "cuda" for DEVICE_CUDA.
std::string LowerName(const google::protobuf::EnumDescriptor& type, int number);

template <typename Enum>
std::string ValueName(Enum value) {
  return ValueName(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}
template <typename Enum>
std::string LowerName(Enum value) {
  return LowerName(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}

}  // namespace tandem::proto
