// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "jobspec/yaml_tree.h"

namespace tandem::jobspec {

// Sets the field of `message`, which stands at `path`, to a scalar. Numbers and truth values are read as
// YAML 1.2 and JSON write them, without the guesses of YAML 1.1. Returns InvalidArgument if the scalar is not
// a value of the field's type; its message says what to do instead.
absl::Status SetScalar(const YamlNode& value, const std::string& path,
                       const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message);

}  // namespace tandem::jobspec
