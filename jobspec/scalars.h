// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "jobspec/yaml_tree.h"

namespace tandem::jobspec {

// Sets `field` of `message`, whose path in the spec is `path`, to a scalar. Numbers and booleans must be
// written as in YAML 1.2 or JSON; YAML 1.1's other forms are errors. If the scalar is not a value of the
// field's type, returns InvalidArgument, whose message says what to do.
absl::Status SetScalar(const YamlNode& value, const std::string& path,
                       const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message);

}  // namespace tandem::jobspec
