// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/tokens.h"

namespace tandem::ops::cpu {

// Throws std::out_of_range, naming the token.
[[noreturn]] void ThrowOutside(int64_t id, int64_t sequence, int64_t position, int64_t vocabulary);

// Calls visit(row, id) for every token in order. Throws std::out_of_range for an id outside [0, vocabulary),
// unless it is `except`.
template <typename Visit>
void ForEachToken(const Tokens& tokens, int64_t vocabulary, const Visit& visit, int64_t except = 0) {
  int64_t row = 0;
  for (int64_t sequence = 0; sequence < tokens.sequences; ++sequence) {
    for (int64_t position = 0; position < tokens.length; ++position, ++row) {
      const int64_t id = tokens.ids[sequence * tokens.stride + position];
      if ((id < 0 || id >= vocabulary) && id != except) {
        ThrowOutside(id, sequence, position, vocabulary);
      }
      visit(row, id);
    }
  }
}

}  // namespace tandem::ops::cpu
