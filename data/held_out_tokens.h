// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "data/token_files.h"

namespace tandem::data {

// Says at which token the held-out end of a text begins, from its indices and without reading a token: at the
// first document that begins once HeldOutTokens are left. If no index says documents, or it cannot be read,
// it is that position, and the end begins there or later.
int64_t EarliestHeldOut(const TokenText& text, double fraction, int64_t sequence_length);

}  // namespace tandem::data
