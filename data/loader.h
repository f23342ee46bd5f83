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

// What a row has after its tokens, and the order of rows.
struct RowOptions {
  bool packs_documents = false;  // rows say where documents begin
  bool has_targets = false;      // rows say which targets count
  // Whether the first token of a document counts as a target of the token before it. If false, has_targets
  // must be true.
  bool counts_first_tokens = true;
  // If true, training windows come in shuffled order, otherwise in the order of the text.
  bool shuffles = true;
};

// One text of a split.
struct LoaderText {
  std::shared_ptr<const TokenSource> source;
  // The job's field that has the text's path, for messages; empty for a held-out part of training text.
  std::string field;
  std::string name;  // its name if the job names several texts, else empty
  // The text's share of the samples, relative to the weights of the other texts. If all weights are 0, each
  // text gives samples in proportion to its number of windows.
  double weight = 0;
};

// Gives the tokens of each microbatch. The data of global microbatch g of step s depend only on the seed, the
// texts, s, g and the arguments of GoOn, and not on how many ranks share the work.
//
// A text is cut into windows of sequence_length + 1 tokens (inputs and targets) that do not overlap. A window
// may span files, but not texts; the remainder at the end is not used. In training, draws.h determines which
// window of which text a sample is. Validation takes the windows of its one text in order, each once, and the
// same windows in every step; targets of the rows after the last window do not count. Windows do not depend
// on documents. If the end of a window cuts a document, the rest of the document counts as a document that
// begins in the next window.
//
// Thread-safe.
class Loader {
 public:
  // `texts` are those of the split; validation has one. Throws DataError if a text is shorter than a window,
  // or if it has masks but rows have no targets. Requires sequence_length >= 1.
  Loader(std::vector<LoaderText> texts, Split split, uint64_t seed, int64_t sequence_length,
         RowOptions options = {});

  // Continues training after step `step`, at whose end `taken` windows of each text had been taken. Without
  // this call, training starts at step 1, with no window taken. No other thread may read meanwhile.
  void GoOn(int64_t step, std::vector<int64_t> taken);

  // Whether some token of a text does not count as a target.
  bool has_masks() const;

  // How many windows of each text are taken by the end of `step` if each step has `samples` samples.
  std::vector<int64_t> Taken(int64_t step, int64_t samples) const;

  // The name, number of windows and integer weight (Blend) of each training text.
  const std::vector<Draws::Source>& sources() const { return draws_->sources(); }

  // For each training text, digest() of a loader with this text alone; hexadecimal.
  std::vector<std::string> digests() const;

  // Writes the rows of a microbatch, [sequences, row_elements()], row-major. A row has the S + 1 tokens of a
  // window, where S is sequence_length. If rows have targets, S numbers follow: the tokens from the second
  // on, with kNotCounted in place of targets that do not count. If documents are packed, S numbers follow:
  // for each token but the last, the index in the window of the first token of its document.
  //
  // `step` counts from 1; validation ignores it. `microbatch` is the global number, below num_microbatches.
  // Every call of a step must pass the same num_microbatches and sequences.
  void Fill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
            int64_t* rows) const;

  // Starts reading from the disk what Fill with the same arguments will read, and does not wait. Cheap for
  // the microbatch that follows the latest one.
  void WillFill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences) const;

  int64_t row_elements() const {
    return window_tokens_ +
           (window_tokens_ - 1) * (int64_t{options_.has_targets} + int64_t{options_.packs_documents});
  }

  // The number of windows of the first text.
  int64_t num_windows() const { return draws_->sources()[0].windows; }

  // How many targets do not count in the first `windows` windows of the first text, in the order of the text.
  // Requires windows <= num_windows().
  int64_t NumUncounted(int64_t windows) const;

  // The file, and the byte in it, of a token that Fill writes for the same arguments: token `token` of row
  // `sequence`.
  Place Where(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences, int64_t sequence,
              int64_t token) const;

  // Covers the names and sizes of the texts' files, what of them is held out and, if documents are packed or
  // their first tokens do not count, how documents are found; hexadecimal. A job that resumes compares it
  // with the digest in the checkpoint.
  std::string digest() const;

  // Covers what digest() covers, and samples of the files' contents (content_sample.h). Ranks compare it
  // before they start, and a job that resumes compares it with the digest in the checkpoint.
  std::string content_digest() const;

 private:
  // The draws of a microbatch's sequences.
  std::vector<Draw> DrawsOf(int64_t step, int64_t microbatch, int64_t num_microbatches,
                            int64_t sequences) const;
  std::string DigestOf(const TokenSource& source) const;
  // Writes targets, [sequence_length], of a window whose first token is the source's token `begin`.
  void FillTargets(const TokenSource& source, int64_t begin, const int64_t* tokens, int64_t* targets) const;
  // Writes starts, [sequence_length], of a window whose first token is the source's token `begin`.
  void FillStarts(const TokenSource& source, int64_t begin, int64_t* starts) const;

  std::vector<LoaderText> texts_;
  Split split_;
  int64_t window_tokens_;
  RowOptions options_;
  int64_t begin_step_ = 0;
  std::unique_ptr<Draws> draws_;
};

}  // namespace tandem::data
