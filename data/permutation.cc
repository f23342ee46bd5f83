// SPDX-License-Identifier: Apache-2.0
#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "platform/check.h"

namespace tandem::data {
namespace {

constexpr int kRounds = 6;

uint64_t Mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

}  // namespace

uint64_t MixKeys(uint64_t a, uint64_t b) { return Mix(Mix(a) ^ b); }

Permutation::Permutation(int64_t size, uint64_t key) : size_(static_cast<uint64_t>(size)), key_(key) {
  TANDEM_CHECK(size > 0 && size <= (int64_t{1} << 62), "a permutation has 1 to 2^62 places");
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2);
}

// A Feistel network on 2 × half_bits_ bits.
uint64_t Permutation::Shuffle(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = left ^ (MixKeys(key_ + round, right) & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t index) const {
  // Walks the cycle until it is back in range: fewer than four steps on average.
  uint64_t value = static_cast<uint64_t>(index);
  TANDEM_CHECK(value < size_, "the index is in range");
  do {
    value = Shuffle(value);
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace tandem::data
