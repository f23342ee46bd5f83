// SPDX-License-Identifier: Apache-2.0
#include "data/stored_tokens.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "data/content_sample.h"
#include "data/held_out.h"
#include "platform/check.h"
#include "platform/for_each_index.h"
#include "platform/xxh3.h"

namespace tandem::data {
namespace {

constexpr int64_t kPointersAtOnce = 128;
constexpr int64_t kSequencesAtOnce = 1 << 16;  // of an index that is read as a whole

// Widens tokens that lie at the end of the memory of as many int64_t. Works from front to back, so that only
// tokens that have been read are overwritten.
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

int CodeOf(TokenType type) {
  constexpr int kU8Code = 1;
  constexpr int kI64Code = 5;
  return type == TokenType::kU8    ? kU8Code
         : type == TokenType::kU16 ? kU16Code
         : type == TokenType::kI64 ? kI64Code
                                   : kI32Code;
}

}  // namespace

StoredTokens::StoredTokens(const TextPath& text, std::shared_ptr<FileReader> files,
                           std::optional<int64_t> end_of_document)
    : field_(text.field), folder_(text.path), end_of_document_(end_of_document), files_(std::move(files)) {
  absl::StatusOr<TokenText> read = ReadTokenText(folder_, FormatOf(folder_, text.format), text.token_type);
  if (!read.ok()) {
    throw DataError(absl::StrCat(field_, ": ", read.status().message()));
  }
  text_ = *std::move(read);
  std::string list = text_.dataset.has_value() ? absl::StrCat("prepared ", text_.dataset->tokenizer_digest,
                                                              " ", BytesOf(text_.dataset->token_type), "\n")
                                               : absl::StrCat("tokens ", end_of_document_.value_or(-1), "\n");
  int64_t begin = 0;
  for (const TokenFile& described : text_.files) {
    Shard& shard = shards_.emplace_back();
    shard.begin = begin;
    shard.file = described;
    begin += described.tokens;
    std::string name = std::filesystem::path(described.path).filename().string();
    if (text_.dataset.has_value()) {
      name.resize(name.size() - std::string_view(".bin").size());
    }
    absl::StrAppend(&list, name.size(), " ", name, " ", described.documents, " ", described.tokens, "\n");
  }
  std::vector<std::string> samples(shards_.size());
  identities_.resize(shards_.size());
  platform::ForEachIndex(shards_.size(), kMostConcurrentFiles, [&](size_t i) {
    Open(shards_[i]);
    samples[i] = files_->ContentSample(shards_[i].bin);
    const auto [device, inode] = files_->inode(shards_[i].bin);
    identities_[i] = {.device = device,
                      .inode = inode,
                      .content = absl::StrCat(shards_[i].file.tokens, " ",
                                              static_cast<int>(shards_[i].file.type), " ", samples[i])};
    if (shards_[i].idx >= 0) {
      absl::StrAppend(&samples[i], " ", files_->ContentSample(shards_[i].idx));
    }
    if (shards_[i].mask >= 0) {
      absl::StrAppend(&samples[i], " ", files_->ContentSample(shards_[i].mask));
    }
    samples[i] += "\n";
  });
  if (has_masks()) {
    absl::StrAppend(&list, "masks ", text_.dataset->never_counted.value_or(-1), "\n");
  }
  digest_ = platform::Xxh3Of(list);
  std::string contents;
  for (const std::string& sample : samples) {
    contents += sample;
  }
  content_digest_ = platform::Xxh3Of(contents);
}

StoredTokens::StoredTokens(std::shared_ptr<FileReader> files, const std::vector<FilePart>& parts,
                           std::optional<int64_t> end_of_document)
    : end_of_document_(end_of_document), text_{.format = TextFormat::kBytes}, files_(std::move(files)) {
  for (const FilePart& part : parts) {
    shards_.push_back({.bin = part.file,
                       .idx = -1,
                       .mask = -1,
                       .begin = text_.tokens,
                       .file = {.begin = part.begin, .type = TokenType::kU8, .tokens = part.bytes}});
    text_.tokens += part.bytes;
  }
}

void StoredTokens::RefuseIndex(const Shard& shard, const std::string& why) const {
  throw DataError(absl::StrCat(field_, ": ", files_->path(shard.idx), " ", why, "; ", Remedy()));
}

std::string StoredTokens::Remedy() const {
  return text_.dataset.has_value() ? "copy the folder again, or make it again with tandem data prepare"
                                   : "copy the file again, or make it again, while no job reads it";
}

void StoredTokens::Open(Shard& shard) const {
  const TokenFile& file = shard.file;
  shard.bin = files_->Add(field_, file.path);
  shard.idx = file.index.empty() ? -1 : files_->Add(field_, file.index);
  shard.mask = file.mask.empty() ? -1 : files_->Add(field_, file.mask);
  if (shard.idx >= 0) {
    OpenIndex(shard);
  }
  const int64_t expected = shard.file.begin + shard.file.tokens * BytesOf(shard.file.type);
  if (files_->size(shard.bin) != expected) {
    throw DataError(absl::StrCat(field_, ": ", files_->path(shard.bin), " has ", files_->size(shard.bin),
                                 " bytes where ",
                                 text_.dataset.has_value() ? "dataset.json says " : "it had ", expected,
                                 ": it was cut off, or is another file; ", Remedy()));
  }
  if (shard.mask >= 0 && files_->size(shard.mask) != (shard.file.tokens + 7) / 8) {
    throw DataError(absl::StrCat(field_, ": ", files_->path(shard.mask), " has ", files_->size(shard.mask),
                                 " bytes where ", shard.file.tokens, " tokens have ",
                                 (shard.file.tokens + 7) / 8, ": it was cut off, or is another file"));
  }
  if (shard.idx < 0) {
    return;
  }
  char length[4];
  const int64_t last = shard.header.sequences - 1;
  files_->Read(shard.idx, shard.header.LengthAt(last), sizeof(length), length);
  if (StartOf(shard, 0) != 0 || StartOf(shard, last) + NumberAt<int32_t>(length) != shard.file.tokens) {
    RefuseIndex(shard, absl::StrCat("has sequences that do not fill the ", shard.file.tokens, " tokens of ",
                                    files_->path(shard.bin)));
  }
}

void StoredTokens::OpenIndex(Shard& shard) const {
  const int64_t bytes = files_->size(shard.idx);
  std::string beginning(std::min(bytes, kIndexHeaderBytes), '\0');
  files_->Read(shard.idx, 0, static_cast<int64_t>(beginning.size()), beginning.data());
  const absl::StatusOr<IndexHeader> header = ParseIndexHeader(beginning, bytes);
  if (!header.ok()) {
    RefuseIndex(shard, std::string(header.status().message()));
  }
  shard.header = *header;
  const int code = CodeOf(shard.file.type);
  const char* const expected = text_.dataset.has_value() ? " where dataset.json says " : " where it had ";
  if (header->type_code != code) {
    const std::string type = code == kU16Code   ? "u16"
                             : code == kI32Code ? "i32"
                                                : absl::StrCat("type ", code);
    RefuseIndex(shard, absl::StrCat("has tokens of type ", header->type_code, expected, type));
  }
  if (header->sequences != shard.file.documents) {
    RefuseIndex(shard, absl::StrCat("has ", header->sequences, " sequences", expected, shard.file.documents));
  }
}

void StoredTokens::CheckIndices() const {
  if (!text_.dataset.has_value()) {
    platform::ForEachIndex(shards_.size(), kMostConcurrentFiles, [&](size_t i) {
      if (shards_[i].idx >= 0) {
        CheckIndex(shards_[i]);
      }
    });
  }
}

void StoredTokens::CheckStartsFrom(int64_t position) const {
  if (text_.dataset.has_value()) {
    return;
  }
  platform::ForEachIndex(shards_.size(), kMostConcurrentFiles, [&](size_t i) {
    const Shard& shard = shards_[i];
    if (shard.idx < 0 || shard.begin + shard.file.tokens <= position) {
      return;
    }
    int64_t previous = 0;
    ForEachPointer(shard, SequenceFrom(shard, position - shard.begin), kSequencesAtOnce,
                   [&](int64_t sequence, int64_t pointer) {
                     if (pointer < previous) {
                       RefuseIndex(shard,
                                   absl::StrCat("says that sequence ", sequence, " begins at byte ", pointer,
                                                ", before the one before it, and an end of the text is held "
                                                "out (data.validation_fraction: 0 holds out none)"));
                     }
                     previous = pointer;
                     return true;
                   });
  });
}

void StoredTokens::CheckIndex(const Shard& shard) const {
  std::vector<char> lengths(4 * kSequencesAtOnce);
  int64_t end = 0;
  ForEachPointer(shard, 0, kSequencesAtOnce, [&](int64_t sequence, int64_t pointer) {
    const int64_t at = sequence % kSequencesAtOnce;
    if (at == 0) {
      const int64_t count = std::min(kSequencesAtOnce, shard.header.sequences - sequence);
      files_->Read(shard.idx, shard.header.LengthAt(sequence), 4 * count, lengths.data());
    }
    const int64_t length = NumberAt<int32_t>(lengths.data() + 4 * at);
    if (pointer != end || length < 0) {
      RefuseIndex(
          shard, absl::StrCat("says that sequence ", sequence, " has ", length, " tokens and begins at byte ",
                              pointer, ", and the one before it ends at ", end));
    }
    end += length * shard.header.token_bytes;
    return true;
  });
}

void StoredTokens::ForEachPointer(const Shard& shard, int64_t first, int64_t at_once,
                                  const std::function<bool(int64_t, int64_t)>& take) const {
  std::vector<char> pointers(8 * at_once);
  for (int64_t begin = first; begin < shard.header.sequences; begin += at_once) {
    const int64_t count = std::min(at_once, shard.header.sequences - begin);
    files_->Read(shard.idx, shard.header.PointerAt(begin), 8 * count, pointers.data());
    for (int64_t i = 0; i < count; ++i) {
      if (!take(begin + i, NumberAt<int64_t>(pointers.data() + 8 * i))) {
        return;
      }
    }
  }
}

const StoredTokens::Shard& StoredTokens::ShardAt(int64_t position) const {
  TANDEM_CHECK(position >= 0 && position < text_.tokens, "the token exists");
  return *(std::upper_bound(shards_.begin(), shards_.end(), position,
                            [](int64_t at, const Shard& shard) { return at < shard.begin; }) -
           1);
}

std::vector<StoredTokens::Run> StoredTokens::RunsOf(int64_t begin, int64_t count) const {
  TANDEM_CHECK(begin >= 0 && count >= 0 && begin <= text_.tokens - count, "the tokens exist");
  std::vector<Run> runs;
  for (const int64_t end = begin + count; begin < end; begin += runs.back().count) {
    const Shard& shard = ShardAt(begin);
    const int64_t offset = begin - shard.begin;
    runs.push_back({&shard, offset, std::min(end - begin, shard.file.tokens - offset)});
  }
  return runs;
}

void StoredTokens::Read(int64_t begin, int64_t count, int64_t* tokens) const {
  for (const auto& [shard, offset, length] : RunsOf(begin, count)) {
    const int64_t size = BytesOf(shard->file.type);
    char* const packed =
        reinterpret_cast<char*>(tokens) + length * (static_cast<int64_t>(sizeof(int64_t)) - size);
    files_->Read(shard->bin, shard->file.begin + offset * size, length * size, packed);
    switch (shard->file.type) {
      case TokenType::kU8:
        Widen<uint8_t>(length, tokens);
        break;
      case TokenType::kU16:
        Widen<uint16_t>(length, tokens);
        break;
      case TokenType::kI32:
        Widen<int32_t>(length, tokens);
        break;
      case TokenType::kU32:
        Widen<uint32_t>(length, tokens);
        break;
      case TokenType::kI64:
        break;
    }
    tokens += length;
  }
}

void StoredTokens::WillRead(int64_t begin, int64_t count) const {
  constexpr int64_t kAround = 512;  // sequences; how far from its expected place a sequence often is
  for (const auto& [shard, offset, length] : RunsOf(begin, count)) {
    const int64_t size = BytesOf(shard->file.type);
    files_->WillRead(shard->bin, shard->file.begin + offset * size, length * size);
    if (shard->mask >= 0) {
      files_->WillRead(shard->mask, offset / 8, (offset + length + 7) / 8 - offset / 8);
    }
    if (shard->idx >= 0) {
      const int64_t near = SequenceNear(shard->header.sequences, offset, shard->file.tokens);
      const int64_t first = std::max<int64_t>(near - kAround, 0);
      const int64_t last = std::min(near + kAround, shard->header.sequences);
      files_->WillRead(shard->idx, shard->header.PointerAt(first), 8 * (last - first));
    }
  }
}

int64_t StoredTokens::StartOf(const Shard& shard, int64_t sequence) const {
  if (sequence == shard.header.sequences) {
    return shard.file.tokens;
  }
  char bytes[8];
  files_->Read(shard.idx, shard.header.PointerAt(sequence), sizeof(bytes), bytes);
  const int64_t pointer = NumberAt<int64_t>(bytes);
  if (pointer < 0 || pointer % shard.header.token_bytes != 0 ||
      pointer / shard.header.token_bytes > shard.file.tokens) {
    RefuseIndex(shard, absl::StrCat("says that sequence ", sequence, " begins at byte ", pointer, " of ",
                                    shard.file.tokens * shard.header.token_bytes));
  }
  return pointer / shard.header.token_bytes;
}

int64_t StoredTokens::SequenceFrom(const Shard& shard, int64_t position) const {
  return data::SequenceFrom(shard.header.sequences, position, shard.file.tokens,
                            [&](int64_t sequence) { return StartOf(shard, sequence); });
}

std::vector<int64_t> StoredTokens::DocumentStarts(int64_t begin, int64_t count) const {
  std::vector<int64_t> starts;
  for (const auto& [in, offset, length] : RunsOf(begin, count)) {
    const Shard& shard = *in;
    const int64_t first = shard.begin + offset;
    const int64_t end = first + length;
    if (shard.idx < 0) {
      AddDocumentStarts(shard, first, end, starts);
      continue;
    }
    int64_t previous = first - 1;
    ForEachPointer(
        shard, SequenceFrom(shard, offset), kPointersAtOnce, [&](int64_t sequence, int64_t pointer) {
          const int64_t start = shard.begin + pointer / shard.header.token_bytes;
          if (pointer < 0 || pointer % shard.header.token_bytes != 0 || start < previous ||
              start - shard.begin > shard.file.tokens) {
            RefuseIndex(shard, absl::StrCat("says that sequence ", sequence, " begins at byte ", pointer,
                                            ", before the one before it or behind the last token"));
          }
          if (start < end && start > previous) {  // a sequence without tokens has the start of the next one
            starts.push_back(start);
            previous = start;
          }
          return start < end;
        });
  }
  return starts;
}

void StoredTokens::AddDocumentStarts(const Shard& shard, int64_t begin, int64_t end,
                                     std::vector<int64_t>& starts) const {
  if (begin == shard.begin) {
    starts.push_back(begin);
  }
  const int64_t from = std::max(shard.begin, begin - 1);
  if (!end_of_document_.has_value() || end - 1 <= from) {
    return;
  }
  std::vector<int64_t> tokens(end - 1 - from);
  Read(from, static_cast<int64_t>(tokens.size()), tokens.data());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == *end_of_document_) {
      starts.push_back(from + static_cast<int64_t>(i) + 1);
    }
  }
}

int64_t StoredTokens::DocumentFrom(int64_t position) const {
  if (position >= text_.tokens) {
    return text_.tokens;
  }
  const Shard& shard = ShardAt(position);
  if (shard.idx >= 0) {
    return shard.begin + StartOf(shard, SequenceFrom(shard, position - shard.begin));
  }
  if (!end_of_document_.has_value()) {
    return position;  // as of the end of a file of text
  }
  constexpr int64_t kTokensAtOnce = 1 << 16;
  for (int64_t begin = position; begin < text_.tokens; begin += kTokensAtOnce) {
    const std::vector<int64_t> starts = DocumentStarts(begin, std::min(kTokensAtOnce, text_.tokens - begin));
    if (!starts.empty()) {
      return starts.front();
    }
  }
  return text_.tokens;
}

bool StoredTokens::has_masks() const {
  return text_.dataset.has_value() && (text_.dataset->has_masks || text_.dataset->never_counted.has_value());
}

std::vector<bool> StoredTokens::Counted(int64_t begin, int64_t count) const {
  std::vector<bool> counted(count, true);
  if (!has_masks()) {
    return counted;
  }
  std::vector<char> bits;
  int64_t done = 0;
  for (const auto& [shard, offset, length] : RunsOf(begin, count)) {
    if (shard->mask >= 0) {
      const int64_t first = offset / 8;
      bits.resize((offset + length + 7) / 8 - first);
      files_->Read(shard->mask, first, static_cast<int64_t>(bits.size()), bits.data());
      for (int64_t i = 0; i < length; ++i) {
        const int64_t at = offset + i - 8 * first;
        counted[done + i] = (static_cast<uint8_t>(bits[at / 8]) >> (at % 8) & 1) != 0;
      }
    }
    done += length;
  }
  if (const std::optional<int64_t>& never = text_.dataset->never_counted; never.has_value()) {
    std::vector<int64_t> tokens(count);
    Read(begin, count, tokens.data());
    for (int64_t i = 0; i < count; ++i) {
      counted[i] = counted[i] && tokens[i] != *never;
    }
  }
  return counted;
}

Place StoredTokens::Where(int64_t position) const {
  const Shard& shard = ShardAt(position);
  return {.file = files_->path(shard.bin),
          .byte = shard.file.begin + (position - shard.begin) * BytesOf(shard.file.type)};
}

int64_t HeldOutFrom(const StoredTokens& tokens, double fraction, int64_t sequence_length) {
  const int64_t all = tokens.text().tokens;
  return tokens.DocumentFrom(all - HeldOutTokens(all, fraction, sequence_length));
}

}  // namespace tandem::data
