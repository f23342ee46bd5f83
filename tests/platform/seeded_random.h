// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/random.h"

namespace tandem::platform {

// A generator of numbers that follow from its seed (splitmix64), for tests. Thread-safe.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next64() override {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
    uint64_t z = state_.fetch_add(kGolden, std::memory_order_relaxed) + kGolden;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  std::atomic<uint64_t> state_;
};

}  // namespace tandem::platform
