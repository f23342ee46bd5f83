// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tandem/v1/report.pb.h"

namespace tandem::proto {

// The digest of a parameter table, which does not depend on the digest that the table has.
std::string DigestOf(v1::ParameterTable table);

}  // namespace tandem::proto
