// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "data/corpus.h"

namespace tandem::data {

// Which tokens a microbatch sees. The data of global microbatch g of step s depend only on the seed, s and g,
// so they do not depend on how many ranks share the work, and resuming needs no state.
//
// A split is cut into windows of sequence_length + 1 tokens that do not overlap (inputs and targets; a window
// may span files); what is left at the end is not used. In training every epoch sees every window once, in an
// order that the seed and the epoch decide. Validation takes the first windows in order, the same in every
// step.
//
// Immutable, thread-safe.
class Loader {
 public:
  // Throws DataError where the split has less than one window. Requires sequence_length >= 1.
  Loader(std::shared_ptr<const Corpus> corpus, Split split, uint64_t seed, int64_t sequence_length);

  // tokens: [sequences, sequence_length + 1], row-major, each from 0 to 255. step from 1 (validation
  // does not look at it); `microbatch` is the
  // global number, below num_microbatches; every call of a step passes the same num_microbatches and
  // sequences.
  void Fill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
            int64_t* tokens) const;

  int64_t num_windows() const { return num_windows_; }

  // The window of sample n, counted from the first of step 1.
  int64_t Window(int64_t sample) const;

 private:
  const std::shared_ptr<const Corpus> corpus_;
  const Split split_;
  const uint64_t seed_;
  const int64_t window_tokens_;
  int64_t num_windows_;
};

}  // namespace tandem::data
