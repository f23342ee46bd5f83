// SPDX-License-Identifier: Apache-2.0
#include "data/prepared_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "data/for_each_file.h"
#include "platform/check.h"
#include "platform/xxh3.h"

namespace tandem::data {
namespace {

constexpr int64_t kPointersAtOnce = 128;

// Widens tokens that lie at the end of the memory of as many int64_t, front to back: what is written has been
// read.
template <typename Token>
void Widen(int64_t count, int64_t* tokens) {
  const char* const packed =
      reinterpret_cast<const char*>(tokens) + count * (sizeof(int64_t) - sizeof(Token));
  for (int64_t i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, packed + i * sizeof(Token), sizeof(Token));
    tokens[i] = token;
  }
}

}  // namespace

PreparedFolder::PreparedFolder(const TextPath& text, const platform::Clock& clock)
    : field_(text.field), folder_(text.path), files_(std::make_unique<FileReader>(text.field, clock)) {
  absl::StatusOr<Dataset> dataset = ReadDataset(folder_);
  if (!dataset.ok()) {
    throw DataError(absl::StrCat(field_, ": ", dataset.status().message()));
  }
  dataset_ = *std::move(dataset);
  std::string list =
      absl::StrCat("prepared ", dataset_.tokenizer_digest, " ", BytesOf(dataset_.token_type), "\n");
  int64_t begin = 0;
  for (const Dataset::Shard& described : dataset_.shards) {
    const std::string prefix = absl::StrCat(folder_, folder_.ends_with('/') ? "" : "/", described.name);
    Shard& shard = shards_.emplace_back();
    shard.bin = files_->Add(prefix + ".bin");
    shard.idx = files_->Add(prefix + ".idx");
    shard.begin = begin;
    shard.tokens = described.tokens;
    begin += described.tokens;
    absl::StrAppend(&list, described.name.size(), " ", described.name, " ", described.documents, " ",
                    described.tokens, "\n");
  }
  std::vector<std::string> samples(shards_.size());
  ForEachFile(shards_.size(), [&](size_t i) {
    Open(dataset_.shards[i], shards_[i]);
    samples[i] =
        absl::StrCat(files_->ContentSample(shards_[i].bin), " ", files_->ContentSample(shards_[i].idx), "\n");
  });
  digest_ = platform::Xxh3Of(list);
  std::string contents;
  for (const std::string& sample : samples) {
    contents += sample;
  }
  content_digest_ = platform::Xxh3Of(contents);
}

void PreparedFolder::RefuseIndex(const Shard& shard, const std::string& why) const {
  throw DataError(absl::StrCat(field_, ": ", files_->path(shard.idx), " ", why,
                               "; copy the folder again, or make it again with tandem data prepare"));
}

void PreparedFolder::Open(const Dataset::Shard& described, Shard& shard) const {
  const int64_t bytes = files_->size(shard.idx);
  std::string beginning(std::min(bytes, kIndexHeaderBytes), '\0');
  files_->Read(shard.idx, 0, static_cast<int64_t>(beginning.size()), beginning.data());
  const absl::StatusOr<IndexHeader> header = ParseIndexHeader(beginning, bytes);
  if (!header.ok()) {
    RefuseIndex(shard, std::string(header.status().message()));
  }
  shard.header = *header;
  const int code = dataset_.token_type == TokenType::kU16 ? kU16Code : kI32Code;
  if (header->type_code != code) {
    RefuseIndex(shard, absl::StrCat("has tokens of type ", header->type_code, " where dataset.json says ",
                                    code == kU16Code ? "u16" : "i32"));
  }
  if (header->sequences != described.documents) {
    RefuseIndex(shard, absl::StrCat("has ", header->sequences, " sequences where dataset.json says ",
                                    described.documents));
  }
  const int64_t expected = shard.tokens * header->token_bytes;
  if (files_->size(shard.bin) != expected) {
    throw DataError(absl::StrCat(field_, ": ", files_->path(shard.bin), " has ", files_->size(shard.bin),
                                 " bytes where dataset.json says ", expected,
                                 ": it was cut off, or is another file; copy the folder again, or make it "
                                 "again with tandem data prepare"));
  }
  char length[4];
  const int64_t last = header->sequences - 1;
  files_->Read(shard.idx, header->LengthAt(last), sizeof(length), length);
  if (StartOf(shard, 0) != 0 || StartOf(shard, last) + IndexLength(length) != shard.tokens) {
    RefuseIndex(shard, absl::StrCat("has sequences that do not fill the ", shard.tokens, " tokens of ",
                                    files_->path(shard.bin)));
  }
}

const PreparedFolder::Shard& PreparedFolder::ShardAt(int64_t position) const {
  TANDEM_CHECK(position >= 0 && position < dataset_.tokens, "the token exists");
  return *(std::upper_bound(shards_.begin(), shards_.end(), position,
                            [](int64_t at, const Shard& shard) { return at < shard.begin; }) -
           1);
}

void PreparedFolder::Read(int64_t begin, int64_t count, int64_t* tokens) const {
  TANDEM_CHECK(begin >= 0 && count >= 0 && begin <= dataset_.tokens - count, "the tokens exist");
  while (count > 0) {
    const Shard& shard = ShardAt(begin);
    const int64_t offset = begin - shard.begin;
    const int64_t length = std::min(count, shard.tokens - offset);
    const int64_t size = shard.header.token_bytes;
    char* const packed =
        reinterpret_cast<char*>(tokens) + length * (static_cast<int64_t>(sizeof(int64_t)) - size);
    files_->Read(shard.bin, offset * size, length * size, packed);
    if (dataset_.token_type == TokenType::kU16) {
      Widen<uint16_t>(length, tokens);
    } else {
      Widen<int32_t>(length, tokens);
    }
    tokens += length;
    begin += length;
    count -= length;
  }
}

int64_t PreparedFolder::StartOf(const Shard& shard, int64_t sequence) const {
  if (sequence == shard.header.sequences) {
    return shard.tokens;
  }
  char bytes[8];
  files_->Read(shard.idx, shard.header.PointerAt(sequence), sizeof(bytes), bytes);
  const int64_t pointer = IndexPointer(bytes);
  if (pointer < 0 || pointer % shard.header.token_bytes != 0 ||
      pointer / shard.header.token_bytes > shard.tokens) {
    RefuseIndex(shard, absl::StrCat("says that sequence ", sequence, " begins at byte ", pointer, " of ",
                                    shard.tokens * shard.header.token_bytes));
  }
  return pointer / shard.header.token_bytes;
}

int64_t PreparedFolder::SequenceFrom(const Shard& shard, int64_t position) const {
  int64_t low = 0;
  int64_t high = shard.header.sequences;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (StartOf(shard, middle) < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::vector<int64_t> PreparedFolder::DocumentStarts(int64_t begin, int64_t count) const {
  TANDEM_CHECK(begin >= 0 && count >= 0 && begin <= dataset_.tokens - count, "the tokens exist");
  std::vector<int64_t> starts;
  const int64_t end = begin + count;
  while (begin < end) {
    const Shard& shard = ShardAt(begin);
    const int64_t last = std::min(end, shard.begin + shard.tokens);
    std::vector<char> bytes(8 * kPointersAtOnce);
    int64_t sequence = SequenceFrom(shard, begin - shard.begin);
    int64_t previous = begin - 1;
    for (bool more = true; more && sequence < shard.header.sequences;) {
      const int64_t at_once = std::min(kPointersAtOnce, shard.header.sequences - sequence);
      files_->Read(shard.idx, shard.header.PointerAt(sequence), 8 * at_once, bytes.data());
      for (int64_t i = 0; more && i < at_once; ++i, ++sequence) {
        const int64_t pointer = IndexPointer(bytes.data() + 8 * i);
        const int64_t start = shard.begin + pointer / shard.header.token_bytes;
        if (pointer < 0 || pointer % shard.header.token_bytes != 0 || start < previous) {
          RefuseIndex(shard, absl::StrCat("says that sequence ", sequence, " begins at byte ", pointer,
                                          ", before the one before it"));
        }
        more = start < last;
        if (more && start > previous) {  // a sequence without tokens begins where the next one does
          starts.push_back(start);
          previous = start;
        }
      }
    }
    begin = last;
  }
  return starts;
}

int64_t PreparedFolder::DocumentFrom(int64_t position) const {
  if (position >= dataset_.tokens) {
    return dataset_.tokens;
  }
  const Shard& shard = ShardAt(position);
  return shard.begin + StartOf(shard, SequenceFrom(shard, position - shard.begin));
}

Place PreparedFolder::Where(int64_t position) const {
  const Shard& shard = ShardAt(position);
  return {.file = files_->path(shard.bin), .byte = (position - shard.begin) * shard.header.token_bytes};
}

PreparedSource::PreparedSource(std::shared_ptr<const PreparedFolder> folder, int64_t begin, int64_t end)
    : folder_(std::move(folder)), begin_(begin), end_(end) {
  TANDEM_CHECK(begin >= 0 && begin <= end && end <= folder_->dataset().tokens, "the tokens exist");
}

void PreparedSource::Read(int64_t begin, int64_t count, int64_t* tokens) const {
  TANDEM_CHECK(begin >= 0 && begin <= num_tokens() - count, "the tokens are of this split");
  folder_->Read(begin_ + begin, count, tokens);
}

std::vector<int64_t> PreparedSource::DocumentStarts(int64_t begin, int64_t count) const {
  TANDEM_CHECK(begin >= 0 && begin <= num_tokens() - count, "the tokens are of this split");
  std::vector<int64_t> starts = folder_->DocumentStarts(begin_ + begin, count);
  for (int64_t& start : starts) {
    start -= begin_;
  }
  return starts;
}

std::string PreparedSource::digest() const {
  return platform::Xxh3Of(absl::StrCat(folder_->digest(), " ", begin_, " ", end_));
}

std::string PreparedSource::documents_digest() const {
  return platform::Xxh3Of(absl::StrCat(digest(), " documents"));
}

int64_t HeldOutFrom(const PreparedFolder& folder, double fraction, int64_t most_tokens) {
  const int64_t tokens = folder.dataset().tokens;
  if (fraction <= 0) {
    return tokens;
  }
  const int64_t held =
      std::min(std::llround(static_cast<double>(tokens) * fraction), static_cast<long long>(most_tokens));
  return folder.DocumentFrom(tokens - held);
}

}  // namespace tandem::data
