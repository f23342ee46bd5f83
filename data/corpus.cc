// SPDX-License-Identifier: Apache-2.0
#include "data/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/content_sample.h"
#include "data/file_kind.h"
#include "data/held_out.h"
#include "platform/check.h"
#include "platform/counted_text.h"
#include "platform/file_list.h"
#include "platform/for_each_index.h"
#include "platform/regular_file.h"
#include "platform/shown_text.h"
#include "platform/xxh3.h"

namespace tandem::data {
namespace {

constexpr size_t kBatchFiles = 256;

}  // namespace

class Corpus::Mapping {
 public:
  Mapping(const TextPath& text, const std::string& path, std::string name)
      : field_(text.field), path_(path), name_(std::move(name)) {
    const absl::StatusOr<platform::Descriptor> file = platform::OpenRegularFile(path, O_RDONLY);
    if (!file.ok()) {
      throw DataError(absl::StrCat(field_, ": cannot ", file.status().message()));
    }
    if (fstat(file->get(), &info_) != 0) {
      throw DataError(absl::StrCat(field_, ": cannot look at ", path, ": ", strerror(errno)));
    }
    size_ = info_.st_size;
    const absl::StatusOr<std::string> sample = ContentSample(file->get(), size_);
    if (!sample.ok()) {
      throw DataError(absl::StrCat(field_, ": cannot read ", path, ": ", sample.status().message()));
    }
    content_sample_ = *sample;
    void* address = size_ == 0 ? nullptr : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file->get(), 0);
    if (address == MAP_FAILED) {
      const int error = errno;
      throw DataError(
          absl::StrCat(field_, ": cannot map ", path, ": ", strerror(error),
                       error == ENOMEM ? "; too many files? join them, or raise vm.max_map_count" : ""));
    }
    bytes_ = static_cast<const uint8_t*>(address);
    const std::string_view beginning(static_cast<const char*>(address), std::min<int64_t>(size_, 16));
    if (const std::string kind = KindOfNoText(path, beginning);
        size_ > 0 && !kind.empty() && text.format != TextFormat::kBytes) {
      const DataError error(absl::StrCat(field_, ": ", path, " is ", kind, "; ", kPrepareIt));
      munmap(address, size_);
      throw error;
    }
  }

  ~Mapping() {
    if (bytes_ != nullptr) {
      munmap(const_cast<uint8_t*>(bytes_), size_);
    }
  }

  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const std::string& field() const { return field_; }
  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }
  const uint8_t* bytes() const { return bytes_; }
  int64_t size() const { return size_; }
  const std::string& content_sample() const { return content_sample_; }

  // The file itself, whatever its name.
  std::pair<dev_t, ino_t> file() const { return {info_.st_dev, info_.st_ino}; }

  // Asks the disk for these bytes. A wish: where the kernel does not take it, they are read when they are
  // needed.
  void WillRead(int64_t begin, int64_t count) const {
    const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
    const int64_t first = begin / page * page;
    static_cast<void>(madvise(const_cast<uint8_t*>(bytes_) + first,
                              static_cast<size_t>(begin + count - first), MADV_WILLNEED));
  }

  // Ranks that read at different times must see the same bytes, and a resumed job those of the first.
  void CheckUnchanged() const {
    struct stat now;
    if (stat(path_.c_str(), &now) != 0 || std::pair(now.st_dev, now.st_ino) != file()) {
      return;  // another file has its name; what is mapped is still there
    }
    if (now.st_size != info_.st_size || now.st_mtim.tv_sec != info_.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != info_.st_mtim.tv_nsec) {
      throw DataError(
          absl::StrCat(field_, ": ", path_,
                       " was written to while the job reads it; train on a copy that stays as it is"));
    }
  }

 private:
  const std::string field_;
  const std::string path_;
  const std::string name_;  // below the root
  struct stat info_ = {};   // when it was opened
  const uint8_t* bytes_ = nullptr;
  int64_t size_ = 0;
  std::string content_sample_;
};

void Corpus::Part::Add(std::shared_ptr<const Mapping> mapping, int64_t file_begin, int64_t size) {
  if (size == 0) {
    return;
  }
  std::string name = mapping->name();
  spans.push_back({.mapping = std::move(mapping),
                   .name = std::move(name),
                   .file_begin = file_begin,
                   .begin = num_tokens,
                   .size = size});
  num_tokens += size;
}

Corpus::Part Corpus::WholeFiles(const Files& files) {
  Part part;
  for (const auto& file : files) {
    part.Add(file, 0, file->size());
  }
  return part;
}

Corpus::Files Corpus::Open(const TextPath& text) {
  const std::string& field = text.field;
  const std::string& pattern = text.path;
  int64_t num_skipped = 0;
  const absl::StatusOr<std::vector<std::string>> paths = platform::ListFiles(pattern, &num_skipped);
  num_skipped_ += num_skipped;
  if (!paths.ok()) {
    throw DataError(absl::StrCat(field, ": ", pattern, ": ", paths.status().message()));
  }
  const std::string root = RootOf(pattern);
  Files files;
  std::set<std::pair<dev_t, ino_t>> seen;
  // A batch at a time: names of one file are mapped once each until they are dropped here.
  for (size_t begin = 0; begin < paths->size(); begin += kBatchFiles) {
    Files batch(std::min(kBatchFiles, paths->size() - begin));
    platform::ForEachIndex(batch.size(), kMostConcurrentFiles, [&](size_t i) {
      const std::string& path = (*paths)[begin + i];
      batch[i] = std::make_shared<const Mapping>(text, path, NameBelow(root, path));
    });
    for (std::shared_ptr<const Mapping>& file : batch) {
      if (file->size() > 0 && seen.insert(file->file()).second) {
        files.push_back(std::move(file));
      }
    }
  }
  if (files.empty()) {
    throw DataError(
        absl::StrCat(field, ": ", pattern, ": every file is empty (", paths->size(), " of them)"));
  }
  return files;
}

void Corpus::CheckApart(const Files& train, const TextPath& of, const Files& validation) {
  std::map<std::pair<dev_t, ino_t>, const Mapping*> trained_on;
  for (const auto& file : train) {
    trained_on.emplace(file->file(), file.get());
  }
  for (const auto& file : validation) {
    const auto found = trained_on.find(file->file());
    if (found != trained_on.end()) {
      const Mapping& trained = *found->second;
      throw DataError(absl::StrCat(of.field, ": ", file->path(), " is also a training file",
                                   trained.path() == file->path() ? "" : ", " + trained.path(),
                                   "; name files that are not in ", trained.field(),
                                   ", or hold out a part of it with data.validation_fraction"));
    }
  }
}

void Corpus::CheckShared(const std::vector<Files>& train) {
  std::vector<std::vector<FileOfText>> texts;
  for (const Files& files : train) {
    std::vector<FileOfText>& text = texts.emplace_back();
    for (const auto& file : files) {
      text.push_back({.device = file->file().first, .inode = file->file().second, .name = file->name()});
    }
  }
  if (const std::optional<SharedFile> shared = FindSharedFile(texts); shared.has_value()) {
    const Mapping& file = *train[shared->second][shared->file];
    throw DataError(SharedFileText(file.field(), file.path(), train[shared->first].front()->field()));
  }
}

void Corpus::HoldOut(const Files& files, double fraction) {
  std::vector<NamedSize> sizes;
  for (const auto& file : files) {
    sizes.push_back({.name = file->name(), .size = file->size()});
  }
  const std::vector<int64_t> held = HeldOutBytes(sizes, fraction);
  Part& train = train_.emplace_back();
  Part& validation = validation_.emplace_back();
  for (size_t i = 0; i < files.size(); ++i) {
    const int64_t trained = files[i]->size() - held[i];
    train.Add(files[i], 0, trained);
    validation.Add(files[i], trained, held[i]);
  }
}

void Corpus::LeaveOutCopies() {
  const auto is_whole = [](const Span& span) { return span.size == span.mapping->size(); };
  const auto key_of = [](const Span& span) { return std::pair(span.size, span.mapping->content_sample()); };
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
                             return memcmp(entry.second->mapping->bytes(), span.mapping->bytes(),
                                           static_cast<size_t>(span.size)) == 0;
                           });
      if (is_copy) {
        ++num_copies_;
      } else {
        rest.Add(span.mapping, span.file_begin, span.size);
      }
    }
    if (rest.spans.empty() && !part.spans.empty()) {
      throw DataError(
          absl::StrCat(part.spans.front().mapping->field(),
                       ": every training file is a copy of one that is held out; use other files, or no "
                       "validation"));
    }
    part = std::move(rest);
  }
}

Corpus::Corpus(const TextOptions& options) {
  std::vector<Files> train;
  for (const TextPath& text : options.train) {
    train.push_back(Open(text));
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
    const Files validation = Open(text);
    for (const Files& trained : train) {
      CheckApart(trained, text, validation);
    }
    validation_.push_back(WholeFiles(validation));
  }
  LeaveOutCopies();
  ComputeDigests(!options.validation.empty());
}

Corpus::~Corpus() = default;

void Corpus::ComputeDigests(bool names_validation) {
  const auto list_of = [](const Part& part) {
    std::string list;
    for (const Span& span : part.spans) {
      absl::StrAppend(&list, span.name.size(), " ", span.name, " ", span.file_begin, " ", span.size, "\n");
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
        absl::StrAppend(&contents, span.mapping->content_sample(), "\n");
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
      names.push_back(platform::Shown(spans[i]->name));
    }
    if (spans.size() > kMostNames) {
      names.push_back(absl::StrCat(spans.size() - kMostNames, " more"));
    }
    const bool is_end = spans.size() == 1 && spans[0]->file_begin > 0;
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
    names.push_back(span.name);
  }
  return names;
}

std::vector<Corpus::Span>::const_iterator Corpus::SpanAt(const Part& part, int64_t token) {
  return std::upper_bound(part.spans.begin(), part.spans.end(), token,
                          [](int64_t at, const Span& candidate) { return at < candidate.begin; }) -
         1;
}

std::vector<int64_t> Corpus::FileStarts(CorpusPart of, int64_t begin, int64_t count) const {
  const Part& source = part(of);
  TANDEM_CHECK(begin >= 0 && count > 0 && begin <= source.num_tokens - count, "the tokens exist");
  std::vector<int64_t> starts;
  for (auto span = SpanAt(source, begin); span != source.spans.end() && span->begin < begin + count; ++span) {
    if (span->begin >= begin) {
      starts.push_back(span->begin);
    }
  }
  return starts;
}

Place Corpus::Where(CorpusPart of, int64_t position) const {
  const Part& source = part(of);
  TANDEM_CHECK(position >= 0 && position < source.num_tokens, "the token exists");
  const auto span = SpanAt(source, position);
  return {.file = span->mapping->path(), .byte = span->file_begin + position - span->begin};
}

bool Corpus::Has(CorpusPart of, int64_t token) const {
  const std::vector<Span>& spans = part(of).spans;
  return token >= 0 && token <= UINT8_MAX && std::any_of(spans.begin(), spans.end(), [&](const Span& span) {
           span.mapping->CheckUnchanged();
           return memchr(span.mapping->bytes() + span.file_begin, static_cast<int>(token), span.size) !=
                  nullptr;
         });
}

void Corpus::ForEachFile(CorpusPart of, int64_t begin, int64_t count,
                         const std::function<void(const Mapping&, int64_t, int64_t)>& take) const {
  const Part& source = part(of);
  TANDEM_CHECK(begin >= 0 && count >= 0 && begin <= source.num_tokens - count, "the tokens exist");
  for (auto span = SpanAt(source, begin); count > 0; ++span) {
    const int64_t offset = begin - span->begin;
    const int64_t length = std::min(count, span->size - offset);
    take(*span->mapping, span->file_begin + offset, length);
    begin += length;
    count -= length;
  }
}

void Corpus::Read(CorpusPart of, int64_t begin, int64_t count, int64_t* tokens) const {
  ForEachFile(of, begin, count, [&](const Mapping& mapping, int64_t first, int64_t length) {
    mapping.CheckUnchanged();
    tokens = std::copy_n(mapping.bytes() + first, length, tokens);
  });
}

void Corpus::WillRead(CorpusPart of, int64_t begin, int64_t count) const {
  ForEachFile(of, begin, count,
              [](const Mapping& mapping, int64_t first, int64_t length) { mapping.WillRead(first, length); });
}

}  // namespace tandem::data
