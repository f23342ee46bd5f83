// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tandem::platform {

// Where ids, incarnations and jitter come from. Thread-safe.
class Random {
 public:
  virtual ~Random() = default;

  virtual uint64_t Next64() = 0;

  // `digits` lower-case hexadecimal digits; ids of jobs are 12 of them. Requires 0 < digits <= 64.
  std::string HexId(int digits);
};

// The kernel's generator.
Random& SystemRandom();

}  // namespace tandem::platform
