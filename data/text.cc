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
      std::make_shared<const Corpus>(CorpusSource{.train = options.train,
                                                  .validation = options.validation,
                                                  .validation_fraction = options.validation_fraction});
  const Documents documents = options.documents.value_or(Documents{});
  SplitText text{.summary = corpus->Summary()};
  for (size_t i = 0; i < corpus->num_texts(Split::kTrain); ++i) {
    const auto train = std::make_shared<const ByteSource>(corpus, CorpusPart(Split::kTrain, i), documents);
    if (options.documents.has_value() && options.train.size() == 1) {
      train->CheckDocuments();
    }
    text.train.push_back(train);
  }
  for (size_t i = 0; i < corpus->num_texts(Split::kValidation); ++i) {
    text.validation.push_back(
        std::make_shared<const ByteSource>(corpus, CorpusPart(Split::kValidation, i), documents));
  }
  return text;
}

// A folder, and the field that names it.
struct Opened {
  std::string field;
  std::shared_ptr<const PreparedFolder> folder;
};

void CheckSameTokenizer(const Opened& first, const Opened& other) {
  if (first.folder->dataset().tokenizer_digest != other.folder->dataset().tokenizer_digest) {
    throw DataError(absl::StrCat(other.field, ": ", other.folder->folder(),
                                 " was prepared with another tokenizer than ", first.field, ", ",
                                 first.folder->folder(), ": ", other.folder->dataset().tokenizer_path,
                                 " and ", first.folder->dataset().tokenizer_path, "; prepare both with one"));
  }
}

void CheckApart(const Opened& train, const Opened& validation) {
  std::error_code error;
  if (std::filesystem::equivalent(train.folder->folder(), validation.folder->folder(), error) ||
      train.folder->content_digest() == validation.folder->content_digest()) {
    throw DataError(absl::StrCat(validation.field, ": ", validation.folder->folder(),
                                 " has the same tokens as ", train.field, ", ", train.folder->folder(),
                                 "; prepare other text for it, or hold out a part of data.train with "
                                 "data.validation_fraction"));
  }
}

SplitText OpenPrepared(const TextOptions& options, const platform::Clock& clock) {
  if (options.documents.has_value() && options.documents->end_of_document.has_value()) {
    throw DataError(absl::StrCat("data.end_of_document: ", options.train[0].field, ", ",
                                 options.train[0].path,
                                 ", is a prepared folder, which says where documents begin; omit the key"));
  }
  std::vector<Opened> trained;
  const auto open = [&](const TextPath& path) {
    Opened opened{.field = path.field, .folder = std::make_shared<const PreparedFolder>(path, clock)};
    CheckSameTokenizer(trained.empty() ? opened : trained[0], opened);
    return opened;
  };
  SplitText text;
  int64_t held_out = 0;
  for (const TextPath& path : options.train) {
    const Opened& train = trained.emplace_back(open(path));
    const int64_t tokens = train.folder->dataset().tokens;
    const int64_t end = options.validation.empty()
                            ? HeldOutFrom(*train.folder, options.validation_fraction,
                                          kMostHeldOutWindows * (options.sequence_length + 1))
                            : tokens;
    text.train.push_back(std::make_shared<const PreparedSource>(train.folder, 0, end));
    if (options.validation.empty()) {
      text.validation.push_back(std::make_shared<const PreparedSource>(train.folder, end, tokens));
    }
    held_out += tokens - end;
    absl::StrAppend(&text.summary, text.summary.empty() ? "" : ", ", tokens, " tokens in ",
                    train.folder->folder());
  }
  if (options.validation.empty()) {
    absl::StrAppend(&text.summary, ", of which the last ", held_out, " are held out");
  }
  for (const TextPath& path : options.validation) {
    const Opened validation = open(path);
    for (const Opened& train : trained) {
      CheckApart(train, validation);
    }
    const int64_t tokens = validation.folder->dataset().tokens;
    absl::StrAppend(&text.summary, text.validation.empty() ? "; validation: " : ", ", tokens, " tokens in ",
                    validation.folder->folder());
    text.validation.push_back(std::make_shared<const PreparedSource>(validation.folder, 0, tokens));
  }
  return text;
}

}  // namespace

SplitText OpenText(const TextOptions& options, const platform::Clock& clock) {
  const auto& [first, first_path] = options.train.at(0);
  const bool prepared = IsDataset(first_path);
  std::vector<TextPath> others(options.train.begin() + 1, options.train.end());
  others.insert(others.end(), options.validation.begin(), options.validation.end());
  for (const auto& [field, path] : others) {
    if (IsDataset(path) != prepared) {
      throw DataError(absl::StrCat(field, ": ", path, prepared ? " is not" : " is",
                                   " a prepared folder, but ", first, ", ", first_path,
                                   prepared ? ", is; prepare the other text with the same tokenizer"
                                            : ", is not; prepare both, or neither"));
    }
  }
  return prepared ? OpenPrepared(options, clock) : OpenBytes(options);
}

}  // namespace tandem::data
