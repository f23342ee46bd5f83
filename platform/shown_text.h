// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::platform {

// Bytes of the UTF-8 character at text[at], decoded into `character`; 0 if no valid character is there.
int DecodeUtf8(std::string_view text, size_t at, char32_t& character);

// Whether a terminal or a log shows it as it is: no control character, nothing that changes the direction of
// text.
bool IsPlain(char32_t character);

// Text of a user for a message: valid UTF-8 in one line of at most `max_bytes` (npos: of any length); what is
// not plain is escaped, what is longer ends in "...".
std::string Shown(std::string_view text, size_t max_bytes = 80);

}  // namespace tandem::platform
