// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::jobspec {

// Where `text` is no JSON any more: at the first character that may not stand there. npos: all of it is JSON,
// or as much of it as stands before a number that is too large for any type, behind which nothing is read.
size_t EndOfJson(std::string_view text);

}  // namespace tandem::jobspec
