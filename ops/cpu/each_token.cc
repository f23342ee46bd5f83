// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/each_token.h"

#include <c10/util/Exception.h>

namespace tandem::ops::cpu {

void ThrowOutside(int64_t id, int64_t sequence, int64_t position, int64_t vocabulary) {
  TORCH_CHECK_INDEX(false, "token id ", id, " of sequence ", sequence, ", position ", position,
                    " is outside the vocabulary of ", vocabulary);
}

}  // namespace tandem::ops::cpu
