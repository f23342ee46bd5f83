// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include "absl/strings/str_cat.h"
#include "data/permutation.h"
#include "platform/check.h"

namespace tandem::data {

Loader::Loader(std::shared_ptr<const Corpus> corpus, Split split, uint64_t seed, int64_t sequence_length)
    : corpus_(std::move(corpus)), split_(split), seed_(seed), window_tokens_(sequence_length + 1) {
  TANDEM_CHECK(sequence_length >= 1, "a sequence has a token");
  const int64_t tokens = corpus_->num_tokens(split);
  num_windows_ = tokens / window_tokens_;
  if (num_windows_ == 0) {
    const bool train = split == Split::kTrain;
    throw DataError(absl::StrCat(
        train ? "data.train" : "data.validation", ": the ", train ? "training" : "held-out", " part has ",
        tokens, " tokens in ", corpus_->files(split).size(),
        corpus_->files(split).size() == 1 ? " file" : " files", ", fewer than one window of ", window_tokens_,
        " (sequence_length + 1); use more text or shorter sequences",
        train ? "" : ", a larger data.validation_fraction, or training.validate_every_steps: 0"));
  }
}

int64_t Loader::Window(int64_t sample) const {
  const int64_t place = sample % num_windows_;
  if (split_ == Split::kValidation) {
    return place;
  }
  const int64_t epoch = sample / num_windows_;
  return Permutation(num_windows_, MixKeys(seed_, static_cast<uint64_t>(epoch)))(place);
}

void Loader::Fill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
                  int64_t* tokens) const {
  const bool train = split_ == Split::kTrain;
  TANDEM_CHECK((step >= 1 || !train) && microbatch >= 0 && microbatch < num_microbatches,
               "the microbatch is of the step");
  const int64_t steps_before = train ? step - 1 : 0;
  const int64_t first = (steps_before * num_microbatches + microbatch) * sequences;
  for (int64_t i = 0; i < sequences; ++i) {
    corpus_->Read(split_, Window(first + i) * window_tokens_, window_tokens_, tokens + i * window_tokens_);
  }
}

}  // namespace tandem::data
