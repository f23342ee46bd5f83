// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "jobspec/jobspec.h"

namespace tandem::jobspec {

// "the nearest are 24 and 36": the multiples of `unit` around `value`, of those in [unit, max].
std::string NearestMultiples(int64_t value, int64_t unit, int64_t max);

v1::Violation MakeViolation(std::string_view path, std::string_view value, std::string_view allowed,
                            std::string_view remedy);

}  // namespace tandem::jobspec
