// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::data {

// A pseudo-random permutation of [0, size) that is computed element by element and takes no memory. The same
// key and size give the same permutation everywhere and in every version. Immutable, thread-safe.
class Permutation {
 public:
  // Requires 0 < size <= 2^62.
  Permutation(int64_t size, uint64_t key);

  // Requires 0 <= index < size.
  int64_t operator()(int64_t index) const;

 private:
  uint64_t Shuffle(uint64_t value) const;

  const uint64_t size_;
  const uint64_t key_;
  int half_bits_;
};

// Mixes both keys to a well-distributed number: the finaliser of SplitMix64, twice.
uint64_t MixKeys(uint64_t a, uint64_t b);

}  // namespace tandem::data
