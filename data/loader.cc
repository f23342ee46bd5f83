// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/permutation.h"
#include "platform/check.h"
#include "platform/xxh3.h"

namespace tandem::data {

Loader::Loader(std::shared_ptr<const TokenSource> source, Split split, uint64_t seed, int64_t sequence_length,
               RowOptions options, const std::string& field)
    : source_(std::move(source)),
      split_(split),
      seed_(seed),
      window_tokens_(sequence_length + 1),
      options_(options) {
  TANDEM_CHECK(sequence_length >= 1, "a sequence has a token");
  TANDEM_CHECK(options.counts_first_tokens || options.has_targets,
               "what does not count is among the targets");
  const int64_t tokens = source_->num_tokens();
  num_windows_ = tokens / window_tokens_;
  if (num_windows_ == 0) {
    const bool train = split == Split::kTrain;
    throw DataError(absl::StrCat(
        !field.empty() ? field
        : train        ? "data.train"
                       : "data.validation",
        ": the ", train ? "training" : "held-out", " part has ", tokens,
        tokens == 1 ? " token in " : " tokens in ", source_->Description(), ", fewer than one window of ",
        window_tokens_, " (sequence_length + 1); use more text or shorter sequences",
        train ? "" : ", a larger data.validation_fraction, or training.validate_every_steps: 0"));
  }
}

std::string Loader::digest() const {
  if (!options_.counts_first_tokens) {
    return platform::Xxh3Of(absl::StrCat(source_->documents_digest(), " without first tokens"));
  }
  return options_.packs_documents ? source_->documents_digest() : source_->digest();
}

std::string Loader::content_digest() const {
  return platform::Xxh3Of(absl::StrCat(digest(), " contents ", source_->content_digest()));
}

int64_t Loader::Window(int64_t sample) const {
  const int64_t place = sample % num_windows_;
  if (split_ == Split::kValidation) {
    return place;
  }
  const int64_t epoch = sample / num_windows_;
  return Permutation(num_windows_, MixKeys(seed_, static_cast<uint64_t>(epoch)))(place);
}

int64_t Loader::Begin(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
                      int64_t sequence) const {
  const bool train = split_ == Split::kTrain;
  TANDEM_CHECK((step >= 1 || !train) && microbatch >= 0 && microbatch < num_microbatches,
               "the microbatch is of the step");
  const int64_t steps_before = train ? step - 1 : 0;
  return Window((steps_before * num_microbatches + microbatch) * sequences + sequence) * window_tokens_;
}

void Loader::Fill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
                  int64_t* rows) const {
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t begin = Begin(step, microbatch, num_microbatches, sequences, i);
    int64_t* const row = rows + i * row_elements();
    source_->Read(begin, window_tokens_, row);
    int64_t* behind = row + window_tokens_;
    if (options_.has_targets) {
      if (split_ == Split::kValidation && microbatch * sequences + i >= num_windows_) {
        std::fill_n(behind, window_tokens_ - 1, kNotCounted);
      } else {
        FillTargets(begin, row, behind);
      }
      behind += window_tokens_ - 1;
    }
    if (options_.packs_documents) {
      FillStarts(begin, behind);
    }
  }
}

Place Loader::Where(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
                    int64_t sequence, int64_t token) const {
  return source_->Where(Begin(step, microbatch, num_microbatches, sequences, sequence) + token);
}

int64_t Loader::NumUncounted(int64_t windows) const {
  int64_t uncounted = 0;
  for (int64_t window = 0; window < windows && !options_.counts_first_tokens; ++window) {
    std::vector<int64_t> firsts = source_->DocumentStarts(window * window_tokens_ + 1, window_tokens_ - 1);
    uncounted += std::unique(firsts.begin(), firsts.end()) - firsts.begin();
  }
  return uncounted;
}

void Loader::FillTargets(int64_t begin, const int64_t* tokens, int64_t* targets) const {
  std::copy_n(tokens + 1, window_tokens_ - 1, targets);
  if (!options_.counts_first_tokens) {
    for (const int64_t first : source_->DocumentStarts(begin + 1, window_tokens_ - 1)) {
      targets[first - begin - 1] = kNotCounted;
    }
  }
}

void Loader::FillStarts(int64_t begin, int64_t* starts) const {
  const std::vector<int64_t> documents = source_->DocumentStarts(begin, window_tokens_ - 1);
  auto document = documents.begin();
  int64_t start = 0;
  for (int64_t i = 0; i < window_tokens_ - 1; ++i) {
    if (document != documents.end() && *document == begin + i) {
      start = i;
      ++document;
    }
    starts[i] = start;
  }
}

}  // namespace tandem::data
