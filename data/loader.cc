// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/held_out.h"
#include "platform/check.h"
#include "platform/xxh3.h"

namespace tandem::data {

namespace {

std::string FieldOf(Split split) { return split == Split::kTrain ? "data.train" : "data.validation"; }

int64_t WindowsOf(const LoaderText& text, Split split, int64_t window_tokens) {
  const int64_t tokens = text.source->num_tokens();
  if (tokens >= window_tokens) {
    return tokens / window_tokens;
  }
  const bool train = split == Split::kTrain;
  throw DataError(absl::StrCat(
      text.field.empty() ? FieldOf(split) : text.field, ": the ", train ? "training" : "held-out",
      " part has ", tokens, tokens == 1 ? " token in " : " tokens in ", text.source->identity().description,
      ", fewer than one window of ", window_tokens,
      " (sequence_length + 1); use more text or shorter sequences",
      train ? "" : ", a larger data.validation_fraction, or training.validate_every_steps: 0"));
}

std::unique_ptr<Draws> DrawsFrom(const std::vector<LoaderText>& texts, Split split, uint64_t seed,
                                 int64_t window_tokens, bool shuffles) {
  std::vector<Draws::Source> sources;
  std::vector<int64_t> windows;
  std::vector<double> weights;
  for (const LoaderText& text : texts) {
    windows.push_back(WindowsOf(text, split, window_tokens));
    weights.push_back(text.weight);
    sources.push_back({.name = text.name, .windows = windows.back()});
  }
  const bool is_weighted =
      std::any_of(weights.begin(), weights.end(), [](double weight) { return weight > 0; });
  const std::vector<int64_t> scaled = is_weighted ? ScaledWeights(weights) : ScaledCounts(windows);
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i].weight = scaled[i];
  }
  return std::make_unique<Draws>(std::move(sources), seed, shuffles);
}

}  // namespace

Loader::Loader(std::vector<LoaderText> texts, Split split, uint64_t seed, int64_t sequence_length,
               RowOptions options)
    : texts_(std::move(texts)), split_(split), window_tokens_(sequence_length + 1), options_(options) {
  TANDEM_CHECK(sequence_length >= 1, "a sequence has a token");
  TANDEM_CHECK(options.counts_first_tokens || options.has_targets,
               "what does not count is among the targets");
  TANDEM_CHECK(!texts_.empty() && (split == Split::kTrain || texts_.size() == 1),
               "a validation is of one text");
  for (const LoaderText& text : texts_) {
    if (text.source->has_masks() && !options.has_targets) {
      throw DataError(absl::StrCat(
          text.field.empty() ? FieldOf(split) : text.field, ": ", text.source->identity().description,
          " says which tokens count as targets, and the rows of this job do not: ", kSayTargets));
    }
  }
  draws_ = DrawsFrom(texts_, split, seed, window_tokens_, split == Split::kTrain && options.shuffles);
}

void Loader::GoOn(int64_t step, std::vector<int64_t> taken) {
  begin_step_ = step;
  draws_->Begin(std::move(taken));
}

std::vector<int64_t> Loader::Taken(int64_t step, int64_t samples) const {
  return draws_->Taken((step - begin_step_) * samples);
}

bool Loader::has_masks() const {
  return std::any_of(texts_.begin(), texts_.end(),
                     [](const LoaderText& text) { return text.source->has_masks(); });
}

std::string Loader::DigestOf(const TokenSource& source) const {
  if (!options_.counts_first_tokens) {
    return platform::Xxh3Of(absl::StrCat(source.identity().documents_digest, " without first tokens"));
  }
  return options_.packs_documents ? source.identity().documents_digest : source.identity().digest;
}

std::vector<std::string> Loader::digests() const {
  std::vector<std::string> digests;
  for (const LoaderText& text : texts_) {
    digests.push_back(DigestOf(*text.source));
  }
  return digests;
}

std::string Loader::digest() const {
  if (texts_.size() == 1 && texts_[0].name.empty()) {
    return DigestOf(*texts_[0].source);
  }
  std::string list = "texts\n";
  for (const LoaderText& text : texts_) {
    absl::StrAppend(&list, text.name.size(), " ", text.name, " ", DigestOf(*text.source), "\n");
  }
  return platform::Xxh3Of(list);
}

std::string Loader::content_digest() const {
  std::string contents;
  for (const LoaderText& text : texts_) {
    absl::StrAppend(&contents, " ", text.source->identity().content_digest);
  }
  return platform::Xxh3Of(absl::StrCat(digest(), " contents", contents));
}

std::vector<Draw> Loader::DrawsOf(int64_t step, int64_t microbatch, int64_t num_microbatches,
                                  int64_t sequences) const {
  const bool train = split_ == Split::kTrain;
  TANDEM_CHECK((step > begin_step_ || !train) && microbatch >= 0 && microbatch < num_microbatches,
               "the microbatch is of the step");
  const int64_t steps_before = train ? step - 1 - begin_step_ : 0;
  return draws_->At((steps_before * num_microbatches + microbatch) * sequences, sequences);
}

void Loader::Fill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
                  int64_t* rows) const {
  const std::vector<Draw> draws = DrawsOf(step, microbatch, num_microbatches, sequences);
  for (int64_t i = 0; i < sequences; ++i) {
    const TokenSource& source = *texts_[draws[i].source].source;
    const int64_t begin = draws[i].window * window_tokens_;
    int64_t* const row = rows + i * row_elements();
    source.Read(begin, window_tokens_, row);
    int64_t* behind = row + window_tokens_;
    if (options_.has_targets) {
      if (split_ == Split::kValidation && microbatch * sequences + i >= num_windows()) {
        std::fill_n(behind, window_tokens_ - 1, kNotCounted);
      } else {
        FillTargets(source, begin, row, behind);
      }
      behind += window_tokens_ - 1;
    }
    if (options_.packs_documents) {
      FillStarts(source, begin, behind);
    }
  }
}

void Loader::WillFill(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences) const {
  for (const Draw& draw : DrawsOf(step, microbatch, num_microbatches, sequences)) {
    texts_[draw.source].source->WillRead(draw.window * window_tokens_, window_tokens_);
  }
}

Place Loader::Where(int64_t step, int64_t microbatch, int64_t num_microbatches, int64_t sequences,
                    int64_t sequence, int64_t token) const {
  const Draw draw = DrawsOf(step, microbatch, num_microbatches, sequences).at(sequence);
  return texts_[draw.source].source->Where(draw.window * window_tokens_ + token);
}

int64_t Loader::NumUncounted(int64_t windows) const {
  const TokenSource& source = *texts_[0].source;
  if (options_.counts_first_tokens && !source.has_masks()) {
    return 0;
  }
  int64_t uncounted = 0;
  std::vector<int64_t> tokens(window_tokens_);
  std::vector<int64_t> targets(window_tokens_ - 1);
  for (int64_t window = 0; window < windows; ++window) {
    source.Read(window * window_tokens_, window_tokens_, tokens.data());
    FillTargets(source, window * window_tokens_, tokens.data(), targets.data());
    uncounted += std::count(targets.begin(), targets.end(), kNotCounted);
  }
  return uncounted;
}

void Loader::FillTargets(const TokenSource& source, int64_t begin, const int64_t* tokens,
                         int64_t* targets) const {
  std::copy_n(tokens + 1, window_tokens_ - 1, targets);
  if (!options_.counts_first_tokens) {
    for (const int64_t first : source.DocumentStarts(begin + 1, window_tokens_ - 1)) {
      targets[first - begin - 1] = kNotCounted;
    }
  }
  if (source.has_masks()) {
    const std::vector<bool> counted = source.Counted(begin + 1, window_tokens_ - 1);
    for (int64_t i = 0; i < window_tokens_ - 1; ++i) {
      targets[i] = counted[i] ? targets[i] : kNotCounted;
    }
  }
}

void Loader::FillStarts(const TokenSource& source, int64_t begin, int64_t* starts) const {
  const std::vector<int64_t> documents = source.DocumentStarts(begin, window_tokens_ - 1);
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
