// SPDX-License-Identifier: Apache-2.0
#include "data/text.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus.h"
#include "data/prepared_source.h"

namespace tandem::data {
namespace {

constexpr int64_t kMostHeldOutWindows = int64_t{1} << 20;

SplitText OpenBytes(const TextOptions& options) {
  const auto corpus =
      std::make_shared<const Corpus>(CorpusSource{.train = {options.train},
                                                  .validation = options.validation,
                                                  .validation_fraction = options.validation_fraction});
  const Documents documents = options.documents.value_or(Documents{});
  const auto train = std::make_shared<const ByteSource>(corpus, Split::kTrain, documents);
  if (options.documents.has_value()) {
    train->CheckDocuments();
  }
  SplitText text{.train = train, .summary = corpus->Summary()};
  for (size_t i = 0; i < corpus->num_texts(Split::kValidation); ++i) {
    text.validation.push_back(
        std::make_shared<const ByteSource>(corpus, CorpusPart(Split::kValidation, i), documents));
  }
  return text;
}

// Training and validation text are apart, and of one tokenizer.
void CheckPair(const PreparedFolder& train, const std::string& field, const PreparedFolder& validation) {
  std::error_code error;
  if (std::filesystem::equivalent(train.folder(), validation.folder(), error) ||
      train.content_digest() == validation.content_digest()) {
    throw DataError(absl::StrCat(field, ": ", validation.folder(), " has the same tokens as data.train, ",
                                 train.folder(),
                                 "; prepare other text for it, or hold out a part of data.train with "
                                 "data.validation_fraction"));
  }
  if (train.dataset().tokenizer_digest != validation.dataset().tokenizer_digest) {
    throw DataError(absl::StrCat(field, ": ", validation.folder(),
                                 " was prepared with another tokenizer than data.train, ", train.folder(),
                                 ": ", validation.dataset().tokenizer_path, " and ",
                                 train.dataset().tokenizer_path, "; prepare both with one"));
  }
}

SplitText OpenPrepared(const TextOptions& options, const platform::Clock& clock) {
  if (options.documents.has_value() && options.documents->end_of_document.has_value()) {
    throw DataError(absl::StrCat("data.end_of_document: data.train, ", options.train.path,
                                 ", is a prepared folder, which says where documents begin; omit the key"));
  }
  const auto train = std::make_shared<const PreparedFolder>(options.train, clock);
  const int64_t tokens = train->dataset().tokens;
  const std::string summary = absl::StrCat(tokens, " tokens in ", train->folder());
  if (!options.validation.empty()) {
    SplitText text{.train = std::make_shared<const PreparedSource>(train, 0, tokens),
                   .summary = absl::StrCat(summary, "; validation:")};
    for (const TextPath& path : options.validation) {
      const auto validation = std::make_shared<const PreparedFolder>(path, clock);
      CheckPair(*train, path.field, *validation);
      absl::StrAppend(&text.summary, text.validation.empty() ? " " : ", ", validation->dataset().tokens,
                      " tokens in ", validation->folder());
      text.validation.push_back(
          std::make_shared<const PreparedSource>(validation, 0, validation->dataset().tokens));
    }
    return text;
  }
  const int64_t held_out =
      HeldOutFrom(*train, options.validation_fraction, kMostHeldOutWindows * (options.sequence_length + 1));
  return {.train = std::make_shared<const PreparedSource>(train, 0, held_out),
          .validation = {std::make_shared<const PreparedSource>(train, held_out, tokens)},
          .summary = absl::StrCat(summary, ", of which the last ", tokens - held_out, " are held out")};
}

}  // namespace

SplitText OpenText(const TextOptions& options, const platform::Clock& clock) {
  const bool prepared = IsDataset(options.train.path);
  for (const auto& [field, path] : options.validation) {
    if (IsDataset(path) != prepared) {
      throw DataError(absl::StrCat(field, ": ", path, prepared ? " is not" : " is",
                                   " a prepared folder, but data.train, ", options.train.path,
                                   prepared ? ", is; prepare the validation text with the same tokenizer"
                                            : ", is not; prepare both, or neither"));
    }
  }
  return prepared ? OpenPrepared(options, clock) : OpenBytes(options);
}

}  // namespace tandem::data
