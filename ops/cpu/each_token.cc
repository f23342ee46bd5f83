// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/each_token.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace tandem::ops::cpu {

void ThrowOutside(int64_t id, int64_t sequence, int64_t position, int64_t vocabulary) {
  throw std::out_of_range(absl::StrCat("token id ", id, " of sequence ", sequence, ", position ", position,
                                       " is outside the vocabulary of ", vocabulary));
}

}  // namespace tandem::ops::cpu
