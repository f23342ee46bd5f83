// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message.h"

namespace tandem::jobspec {

// A field of a spec that differs between two messages of one type.
struct FieldDifference {
  std::string field;  // path: "training.steps"
  std::string here;   // values, as a job file would have them
  std::string there;
};

// The fields that differ between `here` and `there`, in the order of their declaration; `path` is the path of
// both. A field that is not set counts as its type's default, also in a block that is absent.
std::vector<FieldDifference> DifferencesOf(const google::protobuf::Message& there,
                                           const google::protobuf::Message& here, const std::string& path);

}  // namespace tandem::jobspec
