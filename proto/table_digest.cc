// SPDX-License-Identifier: Apache-2.0
#include "proto/table_digest.h"

#include "platform/sha256.h"

namespace tandem::proto {

std::string DigestOf(v1::ParameterTable table) {
  table.clear_digest();
  return platform::Sha256Of(table.SerializeAsString());
}

}  // namespace tandem::proto
