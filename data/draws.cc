// SPDX-License-Identifier: Apache-2.0
#include "data/draws.h"

#include <xxhash.h>

#include <utility>

#include "data/permutation.h"
#include "platform/check.h"

namespace tandem::data {
namespace {

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
  if (sources_.size() == 1) {
    for (int64_t n = begin; n < begin + count; ++n) {
      draws.push_back({.source = 0, .window = WindowOf(0, first_[0] + n)});
    }
    return draws;
  }
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
