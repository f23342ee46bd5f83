// SPDX-License-Identifier: Apache-2.0
#include "data/text.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus.h"
#include "data/held_out.h"
#include "data/prepared_source.h"
#include "data/token_files.h"

namespace tandem::data {
namespace {

SplitText OpenBytes(const TextOptions& options) {
  const auto corpus =
      std::make_shared<const Corpus>(CorpusSource{.train = options.train,
                                                  .validation = options.validation,
                                                  .validation_fraction = options.validation_fraction,
                                                  .validates = options.validates});
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

// The files of all training texts, by what they are and by what they hold.
class TrainedFiles {
 public:
  explicit TrainedFiles(const std::vector<Opened>& texts) {
    for (const Opened& text : texts) {
      const std::vector<PreparedFolder::FileIdentity>& files = text.folder->files();
      for (size_t i = 0; i < files.size(); ++i) {
        const Named named{text.field, text.folder->text().files[i].path};
        by_file_.emplace(std::pair(files[i].device, files[i].inode), named);
        by_content_.emplace(files[i].content, named);
      }
    }
  }

  // Throws where one of them, or a copy of one, is a file of that text.
  void CheckApart(const Opened& validation) const {
    const std::vector<PreparedFolder::FileIdentity>& files = validation.folder->files();
    for (size_t i = 0; i < files.size(); ++i) {
      const auto same = by_file_.find({files[i].device, files[i].inode});
      const auto copy = by_content_.find(files[i].content);
      if (same == by_file_.end() && copy == by_content_.end()) {
        continue;
      }
      const Named& trained = same != by_file_.end() ? same->second : copy->second;
      throw DataError(
          absl::StrCat(validation.field, ": ", validation.folder->text().files[i].path,
                       same != by_file_.end() ? " is also a file of " : " has the same tokens as ",
                       trained.field, ", ", trained.path, "; name other files, or hold out a part of ",
                       trained.field, " with data.validation_fraction"));
    }
  }

 private:
  struct Named {
    std::string field;
    std::string path;
  };
  std::map<std::pair<uint64_t, uint64_t>, Named> by_file_;
  std::map<std::string, Named> by_content_;
};

void CheckShared(const std::vector<Opened>& trained) {
  std::vector<std::vector<FileOfText>> texts;
  for (const Opened& text : trained) {
    std::vector<FileOfText>& files = texts.emplace_back();
    for (const PreparedFolder::FileIdentity& file : text.folder->files()) {
      files.push_back({.device = file.device, .inode = file.inode});
    }
  }
  if (const std::optional<SharedFile> shared = FindSharedFile(texts); shared.has_value()) {
    const Opened& second = trained[shared->second];
    throw DataError(absl::StrCat(second.field, ": ", second.folder->text().files[shared->file].path,
                                 " is also a file of ", trained[shared->first].field,
                                 ", and what is held out of the one would be trained on through the other; "
                                 "name other files, name held-out text with data.validation, or set "
                                 "data.validation_fraction to 0"));
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
  std::vector<Opened> trained;
  std::optional<Opened> known;  // the first that says its tokenizer
  const auto open = [&](const TextPath& path) {
    Opened opened{.field = path.field,
                  .folder = std::make_shared<const PreparedFolder>(path, clock, end_of_document)};
    if (options.documents.has_value()) {
      opened.folder->CheckIndices();
    }
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
                            ? HeldOutFrom(*train.folder, options.validation_fraction, options.sequence_length)
                            : tokens;
    if (options.validation.empty() && options.validates && !options.documents.has_value()) {
      train.folder->CheckStartsFrom(end);
    }
    text.train.push_back(std::make_shared<const PreparedSource>(train.folder, 0, end));
    if (options.validation.empty()) {
      text.validation.push_back(std::make_shared<const PreparedSource>(train.folder, end, tokens));
    }
    held_out += tokens - end;
    absl::StrAppend(&text.summary, text.summary.empty() ? "" : ", ", tokens, " tokens in ",
                    train.folder->folder());
  }
  if (options.validation.empty() && options.validates && held_out > 0) {
    CheckShared(trained);
  }
  if (options.validation.empty()) {
    absl::StrAppend(&text.summary, ", of which the last ", held_out, " are held out");
  }
  const TrainedFiles trained_files(options.validation.empty() ? std::vector<Opened>{} : trained);
  for (const TextPath& path : options.validation) {
    const Opened validation = open(path);
    trained_files.CheckApart(validation);
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
