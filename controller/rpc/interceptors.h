// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "absl/strings/str_replace.h"
#include "google/protobuf/descriptor.h"

namespace tandem::controller {

// The method that a call names, "/tandem.v1.Jobs/Submit"; null where this program has none of that name. The
// health service of gRPC has no descriptor.
inline const google::protobuf::MethodDescriptor* FindMethod(const std::string& path) {
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
      absl::StrReplaceAll(path.substr(std::min<size_t>(1, path.size())), {{"/", "."}}));
}

}  // namespace tandem::controller
