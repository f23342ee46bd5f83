// SPDX-License-Identifier: Apache-2.0
#include "data/text.h"

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus.h"
#include "data/prepared_source.h"
#include "data/token_files.h"

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
  if (!HaveSameTokenizer(first.folder->text(), other.folder->text())) {
    throw DataError(absl::StrCat(
        other.field, ": ", other.folder->folder(), " was prepared with another tokenizer than ", first.field,
        ", ", first.folder->folder(), ": ", other.folder->text().dataset->tokenizer_path, " and ",
        first.folder->text().dataset->tokenizer_path, "; prepare both with one"));
  }
}

// The files of tokens, whatever their names.
std::set<std::pair<dev_t, ino_t>> FilesOf(const Opened& opened) {
  std::set<std::pair<dev_t, ino_t>> files;
  for (const TokenFile& file : opened.folder->text().files) {
    struct stat info {};
    if (stat(file.path.c_str(), &info) == 0) {
      files.emplace(info.st_dev, info.st_ino);
    }
  }
  return files;
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
  const std::set<std::pair<dev_t, ino_t>> trained = FilesOf(train);
  for (const TokenFile& file : validation.folder->text().files) {
    struct stat info {};
    if (stat(file.path.c_str(), &info) == 0 && trained.contains({info.st_dev, info.st_ino})) {
      throw DataError(absl::StrCat(validation.field, ": ", file.path, " is also a file of ", train.field,
                                   ", ", train.folder->folder(),
                                   "; name files that are not trained on, or hold out a part of them with "
                                   "data.validation_fraction"));
    }
  }
}

SplitText OpenTokens(const TextOptions& options, const platform::Clock& clock) {
  const std::optional<int64_t> end_of_document = options.documents.value_or(Documents{}).end_of_document;
  for (const TextPath& text : options.train) {
    const TextFormat format = FormatOf(text.path, text.format);
    if (end_of_document.has_value() && (format == TextFormat::kPrepared || format == TextFormat::kMegatron)) {
      throw DataError(absl::StrCat("data.end_of_document: ", text.field, ", ", text.path,
                                   ", has an index, which says where documents begin; omit the key"));
    }
  }
  std::vector<Opened> trained;
  std::optional<Opened> known;  // the first that says its tokenizer
  const auto open = [&](const TextPath& path) {
    Opened opened{.field = path.field,
                  .folder = std::make_shared<const PreparedFolder>(path, clock, end_of_document)};
    CheckSameTokenizer(known.value_or(opened), opened);
    if (!known.has_value() && opened.folder->text().dataset.has_value()) {
      known = opened;
    }
    return opened;
  };
  SplitText text;
  int64_t held_out = 0;
  for (const TextPath& path : options.train) {
    const Opened& train = trained.emplace_back(open(path));
    const int64_t tokens = train.folder->text().tokens;
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
    const int64_t tokens = validation.folder->text().tokens;
    absl::StrAppend(&text.summary, text.validation.empty() ? "; validation: " : ", ", tokens, " tokens in ",
                    validation.folder->folder());
    text.validation.push_back(std::make_shared<const PreparedSource>(validation.folder, 0, tokens));
  }
  return text;
}

}  // namespace

SplitText OpenText(const TextOptions& options, const platform::Clock& clock) {
  const TextPath& first = options.train.at(0);
  const bool tokens = FormatOf(first.path, first.format) != TextFormat::kBytes;
  std::vector<TextPath> others(options.train.begin() + 1, options.train.end());
  others.insert(others.end(), options.validation.begin(), options.validation.end());
  for (const TextPath& text : others) {
    if ((FormatOf(text.path, text.format) != TextFormat::kBytes) != tokens) {
      throw DataError(absl::StrCat(text.field, ": ", text.path, tokens ? " is not" : " is", " tokens, but ",
                                   first.field, ", ", first.path,
                                   tokens ? ", is; prepare the other text with the same tokenizer"
                                          : ", is not; prepare both, or neither"));
    }
  }
  return tokens ? OpenTokens(options, clock) : OpenBytes(options);
}

}  // namespace tandem::data
