// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "data/token_files.h"

namespace tandem::data {

// Where the held-out end of a text of tokens begins, by its indices and without reading a token: the first
// document from there on where HeldOutTokens are left. That position itself where no index says documents, or
// the index cannot be read: then the end begins there or later.
int64_t EarliestHeldOut(const TokenText& text, double fraction, int64_t sequence_length);

}  // namespace tandem::data
