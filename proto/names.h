#pragma once

#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace tandem::proto {

// "RUNNING" of JOB_STATE_RUNNING: the value's name without its type's prefix; the digits of a number that
// this build does not know.
std::string ValueName(const google::protobuf::EnumDescriptor& type, int number);

// The same in lower case: "cuda" of DEVICE_CUDA, as in a job file.
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
