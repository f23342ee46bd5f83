// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/draws.h"
#include "data/token_source.h"

namespace tandem::data {

inline constexpr int64_t kNotCounted = -1;  // in place of a target that does not count

// What a row says behind its tokens, and the order of rows.
struct RowOptions {
  bool packs_documents = false;  // where documents begin
  bool has_targets = false;      // which targets count
  // Whether the first token of a document counts as a target of the token before it. false needs has_targets.
  bool counts_first_tokens = true;
  // Whether windows to train on come in an order of their own; false: in that of the text.
  bool shuffles = true;
};

// A text among those of a split.
struct LoaderText {
  std::shared_ptr<const TokenSource> source;
  std::string field;  // of the job, that names it, for messages
  std::string name;   // of one of several texts; empty: the job names no other
  double weight = 0;  // its share of the samples, relative to the others'; all 0: each has as many as windows
};

// Which tokens a microbatch sees. The data of global microbatch g of step s depend only on the seed, the
// texts, s and g, and on where GoOn began, so they do not depend on how many ranks share the work.
//
// A text is cut into windows of sequence_length + 1 tokens that do not overlap (inputs and targets; a window
// may span files, and no texts); what is left at the end is not used. In training draws.h says which window
// of which text a sample is. Validation takes the first windows of its one text in order, the same in every
// step, and each once: no target of the rows behind the last window counts. Documents do not change what a
// window holds: one that a window cuts goes on in another, as a document that begins there.
//
// Thread-safe.
class Loader {
 public:
  // texts: of that split; to validate, one. Throws DataError where one has less than a window, or
  // masks and rows have no targets. Requires
  // sequence_length >= 1.
  Loader(std::vector<LoaderText> texts, Split split, uint64_t seed, int64_t sequence_length,
         RowOptions options = {});

  // Of one text without a name, data.train or data.validation.
  Loader(std::shared_ptr<const TokenSource> source, Split split, uint64_t seed, int64_t sequence_length,
         RowOptions options = {});

  // To train from behind step `step` on, before which so many windows of each text were taken. Without it:
  // from step 1 on, and none was. Not while another thread reads.
  void GoOn(int64_t step, std::vector<int64_t> taken);

  // Whether some token of a text does not count as a target.
  bool has_masks() const;

  // How many windows of each text are taken by the end of a step, which has `samples` of them.
  std::vector<int64_t> Taken(int64_t step, int64_t samples) const;

  // Of each text to train on: its name, its windows, and its weight as Blend takes it.
  const std::vector<Draws::Source>& sources() const { return draws_->sources(); }

  // Hexadecimal, of each of them: digest() of that text alone.
  std::vector<std::string> digests() const;

  // rows: [sequences, row_elements()], row-major: of each sequence its sequence_length + 1 tokens; behind
  // them, where rows have targets, its tokens but the first, with kNotCounted in place of those that do not
  // count; and behind these, where documents are packed, for each token but the last the place in the window
  // of its document's first, from 0 to sequence_length - 1. step from 1 (validation does not look at it);
  // `microbatch` is the global number, below num_microbatches; every call of a step passes the same
  // num_microbatches and sequences.
  void Fill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
            int64_t* rows) const;

  // Asks the disk for what Fill with the same arguments will read, and does not wait: another microbatch is
  // read meanwhile. Cheap where it is the next one.
  void WillFill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences) const;

  int64_t row_elements() const {
    return window_tokens_ +
           (window_tokens_ - 1) * (int64_t{options_.has_targets} + int64_t{options_.packs_documents});
  }

  // Of the first text.
  int64_t num_windows() const { return draws_->sources()[0].windows; }

  // How many targets of its first `windows` in order, at most num_windows(), do not count.
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

  // The window of sample n of the first text, counted from the first of step 1.
  int64_t Window(int64_t sample) const;

 private:
  // What the sequences of a microbatch are.
  std::vector<Draw> DrawsOf(int64_t step, int64_t microbatch, int64_t num_microbatches,
                            int64_t sequences) const;
  std::string DigestOf(const TokenSource& source) const;
  // targets: [sequence_length], of a window whose first token is the source's token `begin`.
  void FillTargets(const TokenSource& source, int64_t begin, const int64_t* tokens, int64_t* targets) const;
  // starts: [sequence_length], of a window whose first token is the source's token `begin`.
  void FillStarts(const TokenSource& source, int64_t begin, int64_t* starts) const;

  std::vector<LoaderText> texts_;
  Split split_;
  int64_t window_tokens_;
  RowOptions options_;
  int64_t begin_step_ = 0;
  std::unique_ptr<Draws> draws_;
};

}  // namespace tandem::data
