// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "data/blend.h"

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

// One sample: a window of a source.
struct Draw {
  size_t source = 0;
  int64_t window = 0;
  bool operator==(const Draw&) const = default;
};

// Determines which window of which source each sample of training text is. Samples are numbered from 0;
// `first` windows of each source were taken before sample 0. The k-th window that is taken from a source,
// from 0, is in epoch k / windows. An epoch has each window once, and each epoch has another order. A sample
// depends on the seed, the sources' names, windows and weights, and on `first`, but not on the number of
// ranks.
//
// Thread-safe. Cheap if each request is later than the ones before it, or repeats one of the two latest.
class Draws {
 public:
  struct Source {
    std::string name;     // with the seed, it determines the order of the windows; may be empty
    int64_t windows = 0;  // >= 1
    int64_t weight = 1;   // >= 1, as Blend takes them
  };

  // If `shuffles` is false, the windows of an epoch have the order of the text.
  Draws(std::vector<Source> sources, uint64_t seed, bool shuffles);

  // Restarts at sample 0 after `first` windows of each source. No other thread may draw meanwhile.
  void Begin(std::vector<int64_t> first) ABSL_LOCKS_EXCLUDED(mu_);

  // The draws of samples [begin, begin + count).
  std::vector<Draw> At(int64_t begin, int64_t count) const ABSL_LOCKS_EXCLUDED(mu_);

  // How many windows of each source are taken before sample `samples`, including those before sample 0.
  std::vector<int64_t> Taken(int64_t samples) const ABSL_LOCKS_EXCLUDED(mu_);

  const std::vector<Source>& sources() const { return sources_; }

 private:
  int64_t WindowOf(size_t source, int64_t k) const;

  const std::vector<Source> sources_;
  const std::vector<uint64_t> keys_;  // one for each source
  const bool shuffles_;

  mutable absl::Mutex mu_;
  std::vector<int64_t> first_ ABSL_GUARDED_BY(mu_);
  mutable Blend drawn_ ABSL_GUARDED_BY(mu_);    // at the end of the latest request
  mutable Blend counted_ ABSL_GUARDED_BY(mu_);  // for Taken, which asks for earlier samples
  struct Asked {
    int64_t begin = 0;
    std::vector<Draw> draws;
  };
  mutable std::deque<Asked> asked_ ABSL_GUARDED_BY(mu_);  // the two latest requests
};

}  // namespace tandem::data
