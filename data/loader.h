// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/token_source.h"

namespace tandem::data {

inline constexpr int64_t kNotCounted = -1;  // in place of a target that does not count

// What a row says behind its tokens.
struct RowOptions {
  bool packs_documents = false;  // where documents begin
  bool has_targets = false;      // which targets count
  // Whether the first token of a document counts as a target of the token before it. false needs has_targets.
  bool counts_first_tokens = true;
};

// Which tokens a microbatch sees. The data of global microbatch g of step s depend only on the seed, s and g,
// so they do not depend on how many ranks share the work, and resuming needs no state.
//
// A split is cut into windows of sequence_length + 1 tokens that do not overlap (inputs and targets; a window
// may span files); what is left at the end is not used. In training every epoch sees every window once, in an
// order that the seed and the epoch decide. Validation takes the first windows in order, the same in every
// step, and each once: no target of the rows behind the last window counts. Documents do not change what a
// window holds: one that a window cuts goes on in another, as a document that begins there.
//
// Immutable, thread-safe.
class Loader {
 public:
  // source: the text of that split; field: of the job, that names it, for messages; empty: data.train or
  // data.validation. Throws DataError where the source has less than one window. Requires sequence_length
  // >= 1.
  Loader(std::shared_ptr<const TokenSource> source, Split split, uint64_t seed, int64_t sequence_length,
         RowOptions options = {}, const std::string& field = "");

  // rows: [sequences, row_elements()], row-major: of each sequence its sequence_length + 1 tokens; behind
  // them, where rows have targets, its tokens but the first, with kNotCounted in place of those that do not
  // count; and behind these, where documents are packed, for each token but the last the place in the window
  // of its document's first, from 0 to sequence_length - 1. step from 1 (validation does not look at it);
  // `microbatch` is the global number, below num_microbatches; every call of a step passes the same
  // num_microbatches and sequences.
  void Fill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
            int64_t* rows) const;

  int64_t row_elements() const {
    return window_tokens_ +
           (window_tokens_ - 1) * (int64_t{options_.has_targets} + int64_t{options_.packs_documents});
  }

  int64_t num_windows() const { return num_windows_; }

  // How many targets of the first `windows` in order, at most num_windows(), do not count.
  int64_t NumUncounted(int64_t windows) const;

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
  // targets: [sequence_length], of a window whose first token is the source's token `begin`.
  void FillTargets(int64_t begin, const int64_t* tokens, int64_t* targets) const;
  // starts: [sequence_length], of a window whose first token is the source's token `begin`.
  void FillStarts(int64_t begin, int64_t* starts) const;

  const std::shared_ptr<const TokenSource> source_;
  const Split split_;
  const uint64_t seed_;
  const int64_t window_tokens_;
  const RowOptions options_;
  int64_t num_windows_;
};

}  // namespace tandem::data
