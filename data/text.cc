// SPDX-License-Identifier: Apache-2.0
#include "data/text.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/byte_source.h"
#include "data/corpus.h"
#include "data/held_out.h"
#include "data/prepared_source.h"
#include "data/token_files.h"

namespace tandem::data {
namespace {

SplitText OpenBytes(const TextOptions& options) {
  const auto corpus = std::make_shared<const Corpus>(options);
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

using Folder = std::shared_ptr<const PreparedFolder>;

void CheckSameTokenizer(const PreparedFolder& first, const PreparedFolder& other) {
  if (!HaveSameTokenizer(first.text(), other.text())) {
    throw DataError(absl::StrCat(other.field(), ": ", other.folder(),
                                 " was prepared with another tokenizer than ", first.field(), ", ",
                                 first.folder(), ": ", other.text().dataset->tokenizer_path, " and ",
                                 first.text().dataset->tokenizer_path, "; prepare both with one"));
  }
}

// Throws if a file of `validation`, or a copy of one, is a training file.
void CheckApart(const std::vector<Folder>& trained, const PreparedFolder& validation) {
  std::map<std::pair<uint64_t, uint64_t>, size_t> by_file;
  std::map<std::string, size_t> by_content;
  for (size_t i = 0; i < validation.files().size(); ++i) {
    const PreparedFolder::FileIdentity& file = validation.files()[i];
    by_file.emplace(std::pair(file.device, file.inode), i);
    by_content.emplace(file.content, i);
  }
  for (const Folder& text : trained) {
    for (size_t i = 0; i < text->files().size(); ++i) {
      const PreparedFolder::FileIdentity& file = text->files()[i];
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
    for (const PreparedFolder::FileIdentity& file : text->files()) {
      files.push_back({.device = file.device, .inode = file.inode});
    }
  }
  if (const std::optional<SharedFile> shared = FindSharedFile(texts); shared.has_value()) {
    const PreparedFolder& second = *trained[shared->second];
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
  std::vector<Folder> trained;
  Folder known;  // the first that says its tokenizer
  const auto open = [&](const TextPath& path) {
    const auto folder = std::make_shared<const PreparedFolder>(path, clock, end_of_document);
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
    text.train.push_back(std::make_shared<const PreparedSource>(folder, 0, end));
    if (holds_out) {
      text.validation.push_back(std::make_shared<const PreparedSource>(folder, end, tokens));
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
    text.validation.push_back(std::make_shared<const PreparedSource>(folder, 0, tokens));
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
