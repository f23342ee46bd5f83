// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::platform {

// Decodes the UTF-8 character at text[at] into `character` and returns its number of bytes; returns 0 if
// there is no valid character.
int DecodeUtf8(std::string_view text, size_t at, char32_t& character);

// False for a character that must be escaped in a terminal or a log: a control or invisible character, a line
// end, or one that changes the direction of text.
bool IsPlain(char32_t character);

// Makes a user's text fit for a message: valid UTF-8 in one line, characters that are not plain escaped, cut
// to `max_bytes` with "..." at its end if it is longer (npos: never cut).
std::string Shown(std::string_view text, size_t max_bytes = 80);

}  // namespace tandem::platform
