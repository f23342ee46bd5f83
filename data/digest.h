// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tandem::data {

// XXH3-128, 32 hexadecimal digits.
std::string Digest(std::string_view bytes);

}  // namespace tandem::data
