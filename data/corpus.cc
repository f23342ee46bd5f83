// SPDX-License-Identifier: Apache-2.0
#include "data/corpus.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/content_sample.h"
#include "data/file_kind.h"
#include "data/held_out.h"
#include "platform/counted_text.h"
#include "platform/file_list.h"
#include "platform/for_each_index.h"
#include "platform/shown_text.h"
#include "platform/xxh3.h"

namespace tandem::data {
Corpus::File Corpus::OpenFile(const TextPath& text, const std::string& path, std::string name) {
  const int number = reader_->Add(text.field, path);
  File file{.number = number,
            .name = std::move(name),
            .content_sample = reader_->ContentSample(number),
            .size = reader_->size(number),
            .inode = reader_->inode(number)};
  std::string beginning(std::min<int64_t>(file.size, 16), '\0');
  reader_->Read(number, 0, static_cast<int64_t>(beginning.size()), beginning.data());
  if (const std::string kind = KindOfNoText(path, beginning);
      file.size > 0 && !kind.empty() && text.format != TextFormat::kBytes) {
    throw DataError(absl::StrCat(text.field, ": ", path, " is ", kind, "; ", kPrepareIt));
  }
  return file;
}

bool Corpus::HaveSameBytes(const File& one, const File& two) const {
  constexpr int64_t kBytesAtOnce = 1 << 20;
  std::string bytes;
  std::string others;
  for (int64_t begin = 0; begin < one.size; begin += kBytesAtOnce) {
    const int64_t count = std::min(kBytesAtOnce, one.size - begin);
    bytes.resize(count);
    others.resize(count);
    reader_->Read(one.number, begin, count, bytes.data());
    reader_->Read(two.number, begin, count, others.data());
    if (bytes != others) {
      return false;
    }
  }
  return true;
}

void Corpus::Part::Add(const File& file, int64_t begin, int64_t size) {
  if (size > 0) {
    spans.push_back({.file = file, .begin = begin, .size = size});
    num_tokens += size;
  }
}

Corpus::Part Corpus::WholeFiles(const Files& files) {
  Part part;
  for (const File& file : files) {
    part.Add(file, 0, file.size);
  }
  return part;
}

Corpus::Files Corpus::OpenFiles(const TextPath& text) {
  const std::string& field = text.field;
  const std::string& pattern = text.path;
  int64_t num_skipped = 0;
  const absl::StatusOr<std::vector<std::string>> paths = platform::ListFiles(pattern, &num_skipped);
  num_skipped_ += num_skipped;
  if (!paths.ok()) {
    throw DataError(absl::StrCat(field, ": ", pattern, ": ", paths.status().message()));
  }
  const std::string root = RootOf(pattern);
  Files opened(paths->size());
  platform::ForEachIndex(opened.size(), kMostConcurrentFiles, [&](size_t i) {
    opened[i] = OpenFile(text, (*paths)[i], NameBelow(root, (*paths)[i]));
  });
  Files files;
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (File& file : opened) {
    if (file.size > 0 && seen.insert(file.inode).second) {
      files.push_back(std::move(file));
    }
  }
  if (files.empty()) {
    throw DataError(
        absl::StrCat(field, ": ", pattern, ": every file is empty (", paths->size(), " of them)"));
  }
  return files;
}

void Corpus::CheckApart(const Files& train, const TextPath& of, const Files& validation) const {
  std::map<std::pair<uint64_t, uint64_t>, int> trained_on;
  for (const File& file : train) {
    trained_on.emplace(file.inode, file.number);
  }
  for (const File& file : validation) {
    const auto found = trained_on.find(file.inode);
    if (found != trained_on.end()) {
      const int trained = found->second;
      const std::string path = reader_->path(file.number);
      throw DataError(absl::StrCat(of.field, ": ", path, " is also a training file",
                                   reader_->path(trained) == path ? "" : ", " + reader_->path(trained),
                                   "; name files that are not in ", reader_->field(trained),
                                   ", or hold out a part of it with data.validation_fraction"));
    }
  }
}

void Corpus::CheckShared(const std::vector<Files>& train) const {
  std::vector<std::vector<FileOfText>> texts;
  for (const Files& files : train) {
    std::vector<FileOfText>& text = texts.emplace_back();
    for (const File& file : files) {
      text.push_back({.device = file.inode.first, .inode = file.inode.second, .name = file.name});
    }
  }
  if (const std::optional<SharedFile> shared = FindSharedFile(texts); shared.has_value()) {
    const File& file = train[shared->second][shared->file];
    throw DataError(SharedFileText(reader_->field(file.number), reader_->path(file.number),
                                   reader_->field(train[shared->first].front().number)));
  }
}

void Corpus::HoldOut(const Files& files, double fraction) {
  std::vector<NamedSize> sizes;
  for (const File& file : files) {
    sizes.push_back({.name = file.name, .size = file.size});
  }
  const std::vector<int64_t> held = HeldOutBytes(sizes, fraction);
  Part& train = train_.emplace_back();
  Part& validation = validation_.emplace_back();
  for (size_t i = 0; i < files.size(); ++i) {
    const int64_t trained = files[i].size - held[i];
    train.Add(files[i], 0, trained);
    validation.Add(files[i], trained, held[i]);
  }
}

void Corpus::LeaveOutCopies() {
  const auto is_whole = [](const Span& span) { return span.size == span.file.size; };
  const auto key_of = [](const Span& span) { return std::pair(span.size, span.file.content_sample); };
  std::multimap<std::pair<int64_t, std::string>, const Span*> held_out;
  for (const Part& part : validation_) {
    for (const Span& span : part.spans) {
      if (is_whole(span)) {
        held_out.emplace(key_of(span), &span);
      }
    }
  }
  for (Part& part : train_) {
    Part rest;
    for (Span& span : part.spans) {
      const auto [begin, end] = held_out.equal_range(key_of(span));
      const bool is_copy = is_whole(span) && std::any_of(begin, end, [&](const auto& entry) {
                             return HaveSameBytes(entry.second->file, span.file);
                           });
      if (is_copy) {
        ++num_copies_;
      } else {
        rest.Add(span.file, span.begin, span.size);
      }
    }
    if (rest.spans.empty() && !part.spans.empty()) {
      throw DataError(
          absl::StrCat(reader_->field(part.spans.front().file.number),
                       ": every training file is a copy of one that is held out; use other files, or no "
                       "validation"));
    }
    part = std::move(rest);
  }
}

Corpus::Corpus(const TextOptions& options, const platform::Clock& clock)
    : reader_(std::make_shared<FileReader>(clock)) {
  std::vector<Files> train;
  for (const TextPath& text : options.train) {
    train.push_back(OpenFiles(text));
    if (options.validation.empty()) {
      HoldOut(train.back(), options.validation_fraction);
    } else {
      train_.push_back(WholeFiles(train.back()));
    }
  }
  if (options.validation.empty() && options.validates && options.validation_fraction > 0) {
    CheckShared(train);
  }
  for (const TextPath& text : options.validation) {
    const Files validation = OpenFiles(text);
    for (const Files& trained : train) {
      CheckApart(trained, text, validation);
    }
    validation_.push_back(WholeFiles(validation));
  }
  LeaveOutCopies();
  ComputeDigests(!options.validation.empty());
}

void Corpus::ComputeDigests(bool names_validation) {
  const auto list_of = [](const Part& part) {
    std::string list;
    for (const Span& span : part.spans) {
      absl::StrAppend(&list, span.file.name.size(), " ", span.file.name, " ", span.begin, " ", span.size,
                      "\n");
    }
    return list + "held out:\n";
  };
  std::string list;
  std::string held_out;
  std::string contents;
  for (const std::vector<Part>* parts : {&train_, &validation_}) {
    for (const Part& part : *parts) {
      list += list_of(part);
      held_out += parts == &validation_ ? list_of(part) : "";
      for (const Span& span : part.spans) {
        absl::StrAppend(&contents, span.file.content_sample, "\n");
      }
    }
  }
  for (size_t i = 0; i < train_.size(); ++i) {
    text_digests_.push_back(
        platform::Xxh3Of(list_of(train_[i]) + (names_validation ? held_out : list_of(validation_.at(i)))));
  }
  digest_ = platform::Xxh3Of(list);
  content_digest_ = platform::Xxh3Of(contents);
}

std::string Corpus::Summary() const {
  const auto text_of = [](const std::vector<Part>& parts) {
    int64_t files = 0;
    int64_t tokens = 0;
    for (const Part& part : parts) {
      files += static_cast<int64_t>(part.spans.size());
      tokens += part.num_tokens;
    }
    return absl::StrCat(platform::CountedText(files, "file"), " of ", platform::CountedText(tokens, "byte"));
  };
  std::string text = absl::StrCat("training: ", text_of(train_));
  std::vector<const Span*> spans;
  for (const Part& part : validation_) {
    for (const Span& span : part.spans) {
      spans.push_back(&span);
    }
  }
  if (!spans.empty()) {
    constexpr size_t kMostNames = 3;
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min(kMostNames, spans.size()); ++i) {
      names.push_back(platform::Shown(spans[i]->file.name));
    }
    if (spans.size() > kMostNames) {
      names.push_back(absl::StrCat(spans.size() - kMostNames, " more"));
    }
    const bool is_end = spans.size() == 1 && spans[0]->begin > 0;
    absl::StrAppend(&text, "; held out: ", text_of(validation_), " (", is_end ? "the end of " : "",
                    absl::StrJoin(names, ", "), ")");
  }
  if (num_copies_ > 0) {
    absl::StrAppend(&text, "; left out: ", platform::CountedText(num_copies_, "training file"),
                    " with the bytes of a held-out one");
  }
  if (num_skipped_ > 0) {
    absl::StrAppend(&text, "; skipped: ", platform::CountedText(num_skipped_, "hidden name"));
  }
  return text;
}

std::vector<std::string> Corpus::files(CorpusPart of) const {
  std::vector<std::string> names;
  for (const Span& span : part(of).spans) {
    names.push_back(span.file.name);
  }
  return names;
}

std::shared_ptr<const TokenSource> Corpus::Open(CorpusPart of, const Documents& documents) const {
  const std::vector<Span>& spans = part(of).spans;
  std::vector<StoredTokens::FilePart> parts;
  for (const Span& span : spans) {
    parts.push_back({.file = span.file.number, .begin = span.begin, .bytes = span.size});
  }
  const std::optional<int64_t>& end = documents.end_of_document;
  const auto tokens = std::make_shared<const StoredTokens>(reader_, parts, end);
  const std::string& digest = of.split == Split::kTrain ? text_digests_.at(of.text) : digest_;
  return std::make_shared<const TokenSource>(
      tokens, 0, part(of).num_tokens,
      TextIdentity{.description =
                       spans.size() == 1 ? spans[0].file.name : absl::StrCat("its ", spans.size(), " files"),
                   .digest = digest,
                   .documents_digest = platform::Xxh3Of(absl::StrCat(
                       digest, " documents", end.has_value() ? absl::StrCat(" end with ", *end) : "")),
                   .content_digest = content_digest_});
}

}  // namespace tandem::data
