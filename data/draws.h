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

// What is drawn for one sample: a window of a source.
struct Draw {
  size_t source = 0;
  int64_t window = 0;
  bool operator==(const Draw&) const = default;
};

// Which window of which source each sample of training text is. Samples count from 0, from `first` on: of
// each source so many windows were taken before. Window k of a source, from 0, is in epoch k / windows; in an
// epoch each comes once, in an order of its own. What a sample is depends on the seed, the sources' names,
// windows and weights, and on `first`: on no number of ranks.
//
// Thread-safe. Cheap where samples are asked for in ascending order, also if those before the newest are
// asked for once more.
class Draws {
 public:
  struct Source {
    std::string name;     // keys the order of its windows; empty: the seed alone does
    int64_t windows = 0;  // >= 1
    int64_t weight = 1;   // >= 1, as Blend takes them
  };

  // shuffles: otherwise the windows of an epoch come in their order in the text.
  Draws(std::vector<Source> sources, uint64_t seed, bool shuffles);

  // Begins again: the samples from 0 on follow where `first` windows of each source were taken. Not while
  // another thread draws.
  void Begin(std::vector<int64_t> first) ABSL_LOCKS_EXCLUDED(mu_);

  // Those of samples [begin, begin + count).
  std::vector<Draw> At(int64_t begin, int64_t count) const ABSL_LOCKS_EXCLUDED(mu_);

  // How many windows of each source are taken before sample `samples`, those before sample 0 among them.
  std::vector<int64_t> Taken(int64_t samples) const ABSL_LOCKS_EXCLUDED(mu_);

  const std::vector<Source>& sources() const { return sources_; }

 private:
  int64_t WindowOf(size_t source, int64_t k) const;

  const std::vector<Source> sources_;
  const std::vector<uint64_t> keys_;  // of the sources
  const bool shuffles_;

  mutable absl::Mutex mu_;
  std::vector<int64_t> first_ ABSL_GUARDED_BY(mu_);
  mutable Blend drawn_ ABSL_GUARDED_BY(mu_);    // up to what was asked for last
  mutable Blend counted_ ABSL_GUARDED_BY(mu_);  // for Taken, which is behind
  struct Asked {
    int64_t begin = 0;
    std::vector<Draw> draws;
  };
  mutable std::deque<Asked> asked_ ABSL_GUARDED_BY(mu_);  // for, the newest two
};

}  // namespace tandem::data
