// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message.h"

namespace tandem::jobspec {

// A field of a spec that two messages of one type do not have in common.
struct FieldDifference {
  std::string field;  // path: "training.steps"
  std::string here;   // values, as a job file says them
  std::string there;
};

// Those of `here` and `there`, in the order of their declaration, below `path`. A field that is not set has
// its type's default, and that of a block that is absent, too.
std::vector<FieldDifference> DifferencesOf(const google::protobuf::Message& there,
                                           const google::protobuf::Message& here, const std::string& path);

}  // namespace tandem::jobspec
