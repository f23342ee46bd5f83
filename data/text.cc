// SPDX-License-Identifier: Apache-2.0
#include "data/text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus.h"
#include "data/file_reader.h"
#include "data/held_out.h"
#include "data/stored_tokens.h"
#include "data/token_files.h"
#include "platform/xxh3.h"

namespace tandem::data {
namespace {

// Throws if the only training text is a single document, or if end_of_document does not occur in it.
void CheckDocuments(const TokenSource& text, bool one_file, const Documents& documents) {
  const std::string& files = text.identity().description;
  const std::optional<int64_t>& end = documents.end_of_document;
  if (!end.has_value() && one_file) {
    throw DataError(absl::StrCat("data.documents: packed finds no documents in ", files,
                                 ", the only training file, since a file is a document; name the token that "
                                 "ends one with data.end_of_document, or give a file for each document"));
  }
  constexpr int64_t kTokensAtOnce = 1 << 20;
  const int64_t searched = end.value_or(0) <= UINT8_MAX ? text.num_tokens() : 0;  // a token is a byte
  bool occurs = !end.has_value();
  std::vector<int64_t> tokens;
  for (int64_t begin = 0; begin < searched && !occurs; begin += kTokensAtOnce) {
    tokens.resize(std::min(kTokensAtOnce, text.num_tokens() - begin));
    text.Read(begin, static_cast<int64_t>(tokens.size()), tokens.data());
    occurs = std::find(tokens.begin(), tokens.end(), *end) != tokens.end();
  }
  if (!occurs) {
    throw DataError(absl::StrCat(
        "data.end_of_document: ", *end, " does not occur in the training text (", files,
        "); give the number of the byte that ends a document (10 for a newline)",
        one_file ? ", or use documents: stream" : ", or omit the key: a file is then a document"));
  }
}

SplitText OpenBytes(const TextOptions& options, const platform::Clock& clock) {
  const Corpus corpus(options, clock);
  const Documents documents = options.documents.value_or(Documents{});
  SplitText text{.summary = corpus.Summary()};
  for (size_t i = 0; i < corpus.num_texts(Split::kTrain); ++i) {
    text.train.push_back(corpus.Open({Split::kTrain, i}, documents));
  }
  for (size_t i = 0; i < corpus.num_texts(Split::kValidation); ++i) {
    text.validation.push_back(corpus.Open({Split::kValidation, i}, documents));
  }
  if (options.documents.has_value() && options.train.size() == 1) {
    CheckDocuments(*text.train[0], corpus.files(Split::kTrain).size() == 1, documents);
  }
  return text;
}

using Folder = std::shared_ptr<const StoredTokens>;

std::shared_ptr<const TokenSource> SourceOf(const Folder& folder, int64_t begin, int64_t end) {
  const std::string digest = platform::Xxh3Of(absl::StrCat(folder->digest(), " ", begin, " ", end));
  return std::make_shared<const TokenSource>(
      folder, begin, end,
      TextIdentity{.description = folder->folder(),
                   .digest = digest,
                   .documents_digest = platform::Xxh3Of(absl::StrCat(digest, " documents")),
                   .content_digest = folder->content_digest()});
}

void CheckSameTokenizer(const StoredTokens& first, const StoredTokens& other) {
  if (!HaveSameTokenizer(first.text(), other.text())) {
    throw DataError(absl::StrCat(other.field(), ": ", other.folder(),
                                 " was prepared with another tokenizer than ", first.field(), ", ",
                                 first.folder(), ": ", other.text().dataset->tokenizer_path, " and ",
                                 first.text().dataset->tokenizer_path, "; prepare both with one"));
  }
}

// Throws if a file of `validation`, or a copy of one, is a training file.
void CheckApart(const std::vector<Folder>& trained, const StoredTokens& validation) {
  std::map<std::pair<uint64_t, uint64_t>, size_t> by_file;
  std::map<std::string, size_t> by_content;
  for (size_t i = 0; i < validation.files().size(); ++i) {
    const StoredTokens::FileIdentity& file = validation.files()[i];
    by_file.emplace(std::pair(file.device, file.inode), i);
    by_content.emplace(file.content, i);
  }
  for (const Folder& text : trained) {
    for (size_t i = 0; i < text->files().size(); ++i) {
      const StoredTokens::FileIdentity& file = text->files()[i];
      const auto same = by_file.find({file.device, file.inode});
      const auto copy = by_content.find(file.content);
      if (same == by_file.end() && copy == by_content.end()) {
        continue;
      }
      const size_t held_out = same != by_file.end() ? same->second : copy->second;
      throw DataError(absl::StrCat(validation.field(), ": ", validation.text().files[held_out].path,
                                   same != by_file.end() ? " is also a file of " : " has the same tokens as ",
                                   text->field(), ", ", text->text().files[i].path,
                                   "; name other files, or hold out a part of ", text->field(),
                                   " with data.validation_fraction"));
    }
  }
}

void CheckShared(const std::vector<Folder>& trained) {
  std::vector<std::vector<FileOfText>> texts;
  for (const Folder& text : trained) {
    std::vector<FileOfText>& files = texts.emplace_back();
    for (const StoredTokens::FileIdentity& file : text->files()) {
      files.push_back({.device = file.device, .inode = file.inode});
    }
  }
  if (const std::optional<SharedFile> shared = FindSharedFile(texts); shared.has_value()) {
    const StoredTokens& second = *trained[shared->second];
    throw DataError(SharedFileText(second.field(), second.text().files[shared->file].path,
                                   trained[shared->first]->field()));
  }
}

void CheckEndOfDocument(const TextOptions& options) {
  if (!options.documents.value_or(Documents{}).end_of_document.has_value()) {
    return;
  }
  for (const std::vector<TextPath>* texts : {&options.train, &options.validation}) {
    for (const TextPath& text : *texts) {
      if (HasIndex(FormatOf(text.path, text.format))) {
        throw DataError(absl::StrCat("data.end_of_document: ", text.field, ", ", text.path,
                                     ", has an index, which says where documents begin; omit the key"));
      }
    }
  }
}

SplitText OpenTokens(const TextOptions& options, const platform::Clock& clock) {
  const std::optional<int64_t> end_of_document = options.documents.value_or(Documents{}).end_of_document;
  CheckEndOfDocument(options);
  const auto files = std::make_shared<FileReader>(clock);
  std::vector<Folder> trained;
  Folder known;  // the first one with a known tokenizer
  const auto open = [&](const TextPath& path) {
    const auto folder = std::make_shared<const StoredTokens>(path, files, end_of_document);
    if (options.documents.has_value()) {
      folder->CheckIndices();
    }
    if (known != nullptr) {
      CheckSameTokenizer(*known, *folder);
    } else if (folder->text().dataset.has_value()) {
      known = folder;
    }
    return folder;
  };
  const bool holds_out = options.validation.empty();
  SplitText text;
  int64_t held_out = 0;
  for (const TextPath& path : options.train) {
    const Folder& folder = trained.emplace_back(open(path));
    const int64_t tokens = folder->text().tokens;
    const int64_t end =
        holds_out ? HeldOutFrom(*folder, options.validation_fraction, options.sequence_length) : tokens;
    if (holds_out && options.validates && !options.documents.has_value()) {
      folder->CheckStartsFrom(end);
    }
    text.train.push_back(SourceOf(folder, 0, end));
    if (holds_out) {
      text.validation.push_back(SourceOf(folder, end, tokens));
    }
    held_out += tokens - end;
    absl::StrAppend(&text.summary, text.summary.empty() ? "" : ", ", tokens, " tokens in ", folder->folder());
  }
  if (holds_out && options.validates && held_out > 0) {
    CheckShared(trained);
  }
  if (holds_out) {
    absl::StrAppend(&text.summary, ", of which the last ", held_out, " are held out");
  }
  for (const TextPath& path : options.validation) {
    const Folder folder = open(path);
    CheckApart(trained, *folder);
    const int64_t tokens = folder->text().tokens;
    absl::StrAppend(&text.summary, text.validation.empty() ? "; validation: " : ", ", tokens, " tokens in ",
                    folder->folder());
    text.validation.push_back(SourceOf(folder, 0, tokens));
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
  return tokens ? OpenTokens(options, clock) : OpenBytes(options, clock);
}

}  // namespace tandem::data
