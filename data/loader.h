// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/token_source.h"

namespace tandem::data {

// Which tokens a microbatch sees. The data of global microbatch g of step s depend only on the seed, s and g,
// so they do not depend on how many ranks share the work, and resuming needs no state.
//
// A split is cut into windows of sequence_length + 1 tokens that do not overlap (inputs and targets; a window
// may span files); what is left at the end is not used. In training every epoch sees every window once, in an
// order that the seed and the epoch decide. Validation takes the first windows in order, the same in every
// step. Documents do not change what a window holds: one that a window cuts goes on in another, as a document
// that begins there.
//
// Immutable, thread-safe.
class Loader {
 public:
  // source: the text of that split. packs_documents: whether rows say where documents begin. Throws DataError
  // where the source has less than one window. Requires sequence_length >= 1.
  Loader(std::shared_ptr<const TokenSource> source, Split split, uint64_t seed, int64_t sequence_length,
         bool packs_documents = false);

  // rows: [sequences, row_elements()], row-major: of each sequence its sequence_length + 1 tokens, and behind
  // them, where documents are packed, for each token but the last the place in the window of its document's
  // first, from 0 to sequence_length - 1. step from 1 (validation does not look at it);
  // `microbatch` is the global number, below num_microbatches; every call of a step passes the same
  // num_microbatches and sequences.
  void Fill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
            int64_t* rows) const;

  int64_t row_elements() const { return window_tokens_ + (packs_documents_ ? window_tokens_ - 1 : 0); }

  // Where a file has token `token` of sequence `sequence` of what Fill writes for the same arguments.
  Place Where(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences, int64_t sequence,
              int64_t token) const;

  // Hexadecimal: which text this is, by its files' names and sizes, and what its documents are. A job that
  // goes on from a checkpoint compares it with the one in there.
  std::string digest() const;

  // Of the same, and of the files' contents as far as content_sample.h reads them: ranks compare it before
  // they start, and a job that goes on with the one in the checkpoint.
  std::string content_digest() const;

  // The window of sample n, counted from the first of step 1.
  int64_t Window(int64_t sample) const;

 private:
  // The position of the first token of a sequence.
  int64_t Begin(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
                int64_t sequence) const;
  // starts: [sequence_length], of a window whose first token is the source's token `begin`.
  void FillStarts(int64_t begin, int64_t* starts) const;

  const std::shared_ptr<const TokenSource> source_;
  const Split split_;
  const uint64_t seed_;
  const int64_t window_tokens_;
  const bool packs_documents_;
  int64_t num_windows_;
};

}  // namespace tandem::data
