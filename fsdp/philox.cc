// SPDX-License-Identifier: Apache-2.0
#include "fsdp/philox.h"

#include <cmath>
#include <numbers>

namespace tandem::fsdp {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double PhiloxNormal(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  const auto high = [](uint64_t value) { return static_cast<uint32_t>(value >> 32); };
  const std::array<uint32_t, 4> bits =
      Philox({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
  // 53 bits each; the first in (0, 1], so that its logarithm is finite.
  const double first = static_cast<double>(((uint64_t{bits[0]} << 32 | bits[1]) >> 11) + 1) * 0x1p-53;
  const double second = static_cast<double>((uint64_t{bits[2]} << 32 | bits[3]) >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(first)) * std::cos(2 * std::numbers::pi * second);
}

}  // namespace tandem::fsdp
