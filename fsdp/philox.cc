// SPDX-License-Identifier: Apache-2.0
#include "fsdp/philox.h"

#include "fsdp/philox_arithmetic.h"

namespace tandem::fsdp {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  const PhiloxWords words = PhiloxOf({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return {words.word[0], words.word[1], words.word[2], words.word[3]};
}

double PhiloxNormal(uint64_t seed, uint64_t stream, uint64_t index) {
  return PhiloxNormalOf(seed, stream, index);
}

}  // namespace tandem::fsdp
