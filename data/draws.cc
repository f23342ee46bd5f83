// SPDX-License-Identifier: Apache-2.0
#include "data/draws.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <utility>

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

std::vector<uint64_t> KeysOf(const std::vector<Draws::Source>& sources, uint64_t seed) {
  std::vector<uint64_t> keys;
  for (const Draws::Source& source : sources) {
    keys.push_back(source.name.empty() ? seed
                                       : MixKeys(seed, XXH3_64bits(source.name.data(), source.name.size())));
  }
  return keys;
}

Blend BlendOf(const std::vector<Draws::Source>& sources) {
  std::vector<int64_t> weights;
  for (const Draws::Source& source : sources) {
    weights.push_back(source.weight);
  }
  return Blend(std::move(weights));
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

Draws::Draws(std::vector<Source> sources, uint64_t seed, bool shuffles)
    : sources_(std::move(sources)),
      keys_(KeysOf(sources_, seed)),
      shuffles_(shuffles),
      first_(sources_.size()),
      drawn_(BlendOf(sources_)),
      counted_(drawn_) {}

void Draws::Begin(std::vector<int64_t> first) {
  TANDEM_CHECK(first.size() == sources_.size(), "each source has a count");
  const absl::MutexLock lock(&mu_);
  first_ = std::move(first);
  asked_.clear();
}

int64_t Draws::WindowOf(size_t source, int64_t k) const {
  const int64_t windows = sources_[source].windows;
  const int64_t place = k % windows;
  return shuffles_ ? Permutation(windows, MixKeys(keys_[source], static_cast<uint64_t>(k / windows)))(place)
                   : place;
}

std::vector<Draw> Draws::At(int64_t begin, int64_t count) const {
  const absl::MutexLock lock(&mu_);
  for (const Asked& asked : asked_) {
    if (asked.begin == begin && static_cast<int64_t>(asked.draws.size()) == count) {
      return asked.draws;
    }
  }
  std::vector<Draw> draws;
  drawn_.Seek(begin);
  while (drawn_.samples() < begin + count) {
    const size_t source = drawn_.Next();
    draws.push_back(
        {.source = source, .window = WindowOf(source, first_[source] + drawn_.counts()[source] - 1)});
  }
  if (asked_.size() == 2) {
    asked_.pop_front();
  }
  asked_.push_back({.begin = begin, .draws = draws});
  return draws;
}

std::vector<int64_t> Draws::Taken(int64_t samples) const {
  const absl::MutexLock lock(&mu_);
  counted_.Seek(samples);
  std::vector<int64_t> taken = first_;
  for (size_t i = 0; i < taken.size(); ++i) {
    taken[i] += counted_.counts()[i];
  }
  return taken;
}

}  // namespace tandem::data
