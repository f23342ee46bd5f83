// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tandem::platform {

// The source of ids, incarnations and jitter. Thread-safe.
class Random {
 public:
  virtual ~Random() = default;

  virtual uint64_t Next64() = 0;

  // Returns `digits` lower-case hexadecimal digits; a job's id has 12. Requires 0 < digits <= 64.
  std::string HexId(int digits);
};

// The kernel's generator.
Random& SystemRandom();

}  // namespace tandem::platform
