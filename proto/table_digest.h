// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tandem/v1/report.pb.h"

namespace tandem::proto {

// Computes the digest of a parameter table. The table's own field `digest` is ignored.
std::string DigestOf(v1::ParameterTable table);

}  // namespace tandem::proto
