// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "jobspec/jobspec.h"

namespace tandem::jobspec {

// Names the multiples of `unit` closest to `value` in [unit, max]: "the nearest are 24 and 36".
std::string NearestMultiples(int64_t value, int64_t unit, int64_t max);

v1::Violation MakeViolation(std::string_view path, std::string_view value, std::string_view allowed,
                            std::string_view remedy);

}  // namespace tandem::jobspec
