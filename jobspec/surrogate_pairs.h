// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tandem::jobspec {

// JSON writes a character beyond U+FFFF as two escapes, "\ud83d\ude00", which YAML does not know: its own is
// "\U0001f600". Where `text` is JSON (json_end.h), the same document with the pairs in YAML's form, every
// value at the line and column where it was; any other text as it is.
std::string WithYamlEscapes(std::string_view text);

}  // namespace tandem::jobspec
