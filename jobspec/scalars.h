// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tandem::jobspec {

// Parse numbers as YAML 1.2 and JSON write them, without the guesses of YAML 1.1. Each function returns false
// if it fails, and sets `why` to what to do instead; `why` is empty if only the range is wrong.

bool ParseInteger(const std::string& text, int64_t min, int64_t max, int64_t& value, std::string& why);
bool ParseUnsigned(const std::string& text, uint64_t& value, std::string& why);

// Refuses NaN, infinity, and numbers that a double cannot hold.
bool ParseDouble(const std::string& text, double& value, std::string& why);

// "64MiB", "2GB", "1048576".
bool ParseBytes(const std::string& text, int64_t& value, std::string& why);

// Whether a plain scalar is a number or a truth value, and so not a text.
bool LooksLikeNumber(const std::string& text);

}  // namespace tandem::jobspec
