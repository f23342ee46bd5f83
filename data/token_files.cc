// SPDX-License-Identifier: Apache-2.0
#include "data/token_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "data/file_kind.h"
#include "data/held_out.h"
#include "data/indexed_file.h"
#include "platform/file_list.h"
#include "platform/regular_file.h"
#include "platform/shown_text.h"
#include "platform/status_macros.h"

namespace tandem::data {
namespace {

constexpr char kTokens[] = ".bin";
constexpr char kIndex[] = ".idx";
constexpr char kMask[] = ".mask";
constexpr size_t kSuffixBytes = 4;
constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr int64_t kMostNumpyHeader = 1 << 16;
constexpr int64_t kLlmcHeaderBytes = 1024;
constexpr int32_t kLlmcMagics[] = {20240520, 20240801, 20240522};
constexpr int64_t kMostTokensOfText = int64_t{1} << 48;
constexpr int64_t kBeginningBytes = kMostNumpyHeader + 12;

absl::Status Wrong(const std::string& why) { return absl::InvalidArgumentError(why); }

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(platform::Shown(path, 400), " ", status.message()));
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

std::string WithoutSuffix(const std::string& path) { return path.substr(0, path.size() - kSuffixBytes); }

// Returns the prefixes of the pairs that `path` may name.
std::vector<std::string> PairPrefixes(const std::string& path) {
  std::vector<std::string> prefixes = {path};
  if (path.ends_with(kTokens) || path.ends_with(kIndex)) {
    prefixes.push_back(WithoutSuffix(path));
  }
  std::erase_if(prefixes, [](const std::string& prefix) {
    return prefix.empty() || prefix.ends_with('/') || !IsFile(prefix + kTokens) || !IsFile(prefix + kIndex);
  });
  return prefixes;
}

bool IsLlmc(std::string_view beginning) {
  return static_cast<int64_t>(beginning.size()) >= kLlmcHeaderBytes &&
         std::find(std::begin(kLlmcMagics), std::end(kLlmcMagics), NumberAt<int32_t>(beginning.data())) !=
             std::end(kLlmcMagics);
}

// Describes the tokens from byte `begin` to the end of the file.
absl::StatusOr<TokenFile> Behind(int64_t begin, int64_t bytes, TokenType type) {
  if (bytes < begin || (bytes - begin) % BytesOf(type) != 0) {
    return Wrong(absl::StrCat("has ", bytes, " bytes, which is not a whole number of tokens of ",
                              BytesOf(type), " bytes", begin > 0 ? absl::StrCat(" behind ", begin) : "",
                              ": it was cut off, or its tokens are of another type"));
  }
  return TokenFile{.begin = begin, .type = type, .tokens = (bytes - begin) / BytesOf(type)};
}

// Returns the text after 'key': in a header of numpy, without leading spaces; empty if there is none.
std::string_view BehindKey(std::string_view header, std::string_view key) {
  const std::string quoted = absl::StrCat("'", std::string(key), "'");
  const size_t at = header.find(quoted);
  if (at == std::string_view::npos) {
    return "";
  }
  std::string_view rest = header.substr(at + quoted.size());
  const size_t colon = rest.find_first_not_of(' ');
  if (colon == std::string_view::npos || rest[colon] != ':') {
    return "";
  }
  rest.remove_prefix(colon + 1);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

absl::StatusOr<TokenFile> ReadPair(const std::string& prefix) {
  const std::string index = prefix + kIndex;
  TANDEM_ASSIGN_OR_RETURN(const Beginning beginning, ReadBeginning(index, kIndexHeaderBytes));
  const absl::StatusOr<IndexHeader> header = ParseIndexHeader(beginning.bytes, beginning.file_bytes);
  if (!header.ok()) {
    return Named(index, header.status());
  }
  constexpr std::pair<int, TokenType> kTypes[] = {
      {1, TokenType::kU8}, {kI32Code, TokenType::kI32}, {5, TokenType::kI64}, {kU16Code, TokenType::kU16}};
  const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                        [&](const auto& known) { return known.first == header->type_code; });
  if (type == std::end(kTypes)) {
    return Named(index, Wrong(absl::StrCat("has tokens of type ", header->type_code,
                                           "; allowed: 1 (u8), 4 (i32), 5 (i64) and 8 (u16)")));
  }
  TANDEM_ASSIGN_OR_RETURN(const Beginning tokens, ReadBeginning(prefix + kTokens, 0));
  absl::StatusOr<TokenFile> file = Behind(0, tokens.file_bytes, type->second);
  if (!file.ok()) {
    return Named(prefix + kTokens, file.status());
  }
  if (header->sequences == 0 || file->tokens == 0) {
    return Named(prefix + kTokens, Wrong("has no token"));
  }
  file->path = prefix + kTokens;
  file->index = index;
  file->documents = header->sequences;
  return file;
}

// Returns the kind of a file that cannot be numbers without a header; empty if it can. The first tokens of a
// text may equal the two bytes with which gzip begins, so more bytes are compared here than for files of
// text.
std::string KindOfNoNumbers(const std::string& path, std::string_view beginning) {
  for (const std::string_view suffix : {kIndex, ".json", ".md", ".txt"}) {
    if (path.ends_with(suffix)) {
      return absl::StrCat("a file named *", std::string(suffix));
    }
  }
  if (IsLlmc(beginning)) {
    return "a file of llm.c";
  }
  std::string kind = KindOfNoText("", beginning);
  const bool is_chance = (beginning.starts_with("\x1f\x8b") && !beginning.starts_with("\x1f\x8b\x08")) ||
                         (kind == "a safetensors file" && (beginning.size() < 10 || beginning[9] != '"'));
  return is_chance ? "" : kind;
}

absl::StatusOr<TokenFile> ReadSingle(const std::string& path, TextFormat format,
                                     std::optional<TokenType> type) {
  TANDEM_ASSIGN_OR_RETURN(const Beginning beginning, ReadBeginning(path, kBeginningBytes));
  if (const std::string kind =
          format == TextFormat::kFlat ? KindOfNoNumbers(path, beginning.bytes) : std::string();
      !kind.empty()) {
    return Named(path, Wrong(absl::StrCat("is ", kind,
                                          ", and format: flat is of numbers without a header: name "
                                          "the files of tokens with a glob, or omit format")));
  }
  absl::StatusOr<TokenFile> file =
      format == TextFormat::kNpy    ? ParseNumpyHeader(beginning.bytes, beginning.file_bytes)
      : format == TextFormat::kLlmc ? ParseLlmcHeader(beginning.bytes, beginning.file_bytes)
                                    : Behind(0, beginning.file_bytes, type.value_or(TokenType::kU16));
  if (!file.ok()) {
    return Named(path, file.status());
  }
  file->path = path;
  return file;
}

// Returns the files of a folder, a glob or a single file, sorted by path; of pairs, without the indices.
absl::StatusOr<std::vector<std::string>> TokenPaths(const std::string& path, TextFormat format) {
  absl::StatusOr<std::vector<std::string>> files = platform::ListFiles(path);
  if (!files.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", files.status().message()));
  }
  if (format == TextFormat::kMegatron) {
    std::erase_if(*files, [](const std::string& file) { return file.ends_with(kIndex); });
    for (const std::string& file : *files) {
      if (!file.ends_with(kTokens) || !IsFile(WithoutSuffix(file) + kIndex)) {
        return Named(file,
                     Wrong("is not one of a pair of .bin and .idx, as the others are: name those with a "
                           "glob, or put it elsewhere"));
      }
    }
  }
  return files;
}

// Returns the token of the file at which its first document at or after token `position` begins.
int64_t DocumentInFile(const TokenFile& file, int64_t position) {
  const absl::StatusOr<platform::Descriptor> index = platform::OpenRegularFile(file.index, O_RDONLY);
  if (!index.ok()) {
    return position;
  }
  const IndexHeader header{.sequences = file.documents};
  bool is_read = true;
  const auto start_of = [&](int64_t sequence) {
    char bytes[8] = {};
    is_read =
        is_read && pread(index->get(), bytes, sizeof(bytes), header.PointerAt(sequence)) == sizeof(bytes);
    return NumberAt<int64_t>(bytes) / BytesOf(file.type);
  };
  const int64_t sequence = SequenceFrom(header.sequences, position, file.tokens, start_of);
  const int64_t start = sequence == header.sequences ? file.tokens : start_of(sequence);
  return is_read && start >= position && start <= file.tokens ? start : position;
}

}  // namespace

absl::StatusOr<TokenFile> ParseNumpyHeader(std::string_view beginning, int64_t bytes) {
  if (!beginning.starts_with(kNumpyMagic) || beginning.size() < 12) {
    return Wrong(
        "does not begin as numpy's files do; where it has numbers without a header, say format: flat and "
        "token_type: u16 or u32");
  }
  const int version = beginning[6];
  const bool is_short = version == 1;
  const size_t at = is_short ? 10 : 12;
  const int64_t length =
      is_short ? NumberAt<uint16_t>(beginning.data() + 8) : NumberAt<uint32_t>(beginning.data() + 8);
  if (version < 1 || version > 3 || length > kMostNumpyHeader ||
      static_cast<int64_t>(beginning.size()) < static_cast<int64_t>(at) + length) {
    return Wrong(
        absl::StrCat("is of version ", version,
                     " of numpy's format, or was cut off; allowed: 1, 2 and 3, with a header of up to ",
                     kMostNumpyHeader, " bytes: copy it again, or write it with numpy.save"));
  }
  const std::string_view header = beginning.substr(at, length);
  constexpr std::pair<std::string_view, TokenType> kTypes[] = {{"'|u1'", TokenType::kU8},
                                                               {"'<u2'", TokenType::kU16},
                                                               {"'<i4'", TokenType::kI32},
                                                               {"'<u4'", TokenType::kU32},
                                                               {"'<i8'", TokenType::kI64}};
  const std::string_view descr = BehindKey(header, "descr");
  const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                        [&](const auto& known) { return descr.starts_with(known.first); });
  if (type == std::end(kTypes)) {
    return Wrong(absl::StrCat("has numbers of type ", platform::Shown(descr.substr(0, descr.find(',')), 40),
                              "; allowed: |u1, <u2, <i4, <u4, <i8"));
  }
  const std::string_view shape = BehindKey(header, "shape");
  const size_t end = shape.find(')');
  if (!shape.starts_with('(') || end == std::string_view::npos) {
    return Wrong(
        "has a header without a shape; allowed: a shape in parentheses, as in (1000,): write it with "
        "numpy.save");
  }
  int64_t tokens = 1;
  int dims = 0;
  for (const auto& dim : absl::StrSplit(absl::string_view(shape.data() + 1, end - 1), ',')) {
    const absl::string_view text = absl::StripAsciiWhitespace(dim);
    int64_t size = 0;
    if (text.empty()) {
      continue;
    }
    if (!absl::SimpleAtoi(text, &size) || size < 0 || (size > 0 && tokens > kMostTokensOfText / size)) {
      return Wrong(absl::StrCat("has a shape with ", platform::Shown(std::string(text), 40),
                                "; allowed: whole numbers from 0, at most ", kMostTokensOfText,
                                " tokens in all: write it with numpy.save"));
    }
    tokens *= size;
    ++dims;
  }
  if (dims > 1 && !BehindKey(header, "fortran_order").starts_with("False")) {
    return Wrong(
        "is not an array of rows that follow each other, as its order is Fortran's; allowed: one dim, or "
        "fortran_order False: write it with numpy.ascontiguousarray");
  }
  const int64_t begin = static_cast<int64_t>(at) + length;
  TANDEM_ASSIGN_OR_RETURN(TokenFile file, Behind(begin, bytes, type->second));
  if (file.tokens != tokens) {
    return Wrong(absl::StrCat("says that it has ", tokens, " numbers, and has ", file.tokens,
                              ": it was cut off, or is another file"));
  }
  return file;
}

absl::StatusOr<TokenFile> ParseLlmcHeader(std::string_view beginning, int64_t bytes) {
  if (static_cast<int64_t>(beginning.size()) < kLlmcHeaderBytes) {
    return Wrong("is shorter than the header of llm.c");
  }
  const auto magic = NumberAt<int32_t>(beginning.data());
  const auto version = NumberAt<int32_t>(beginning.data() + 4);
  const auto tokens = NumberAt<int32_t>(beginning.data() + 8);
  if (magic == kLlmcMagics[2]) {
    return Wrong("is llm.c's file of questions with answers, and no text to train on");
  }
  const bool is_u16 = magic == kLlmcMagics[0] && version == 1;
  if (!is_u16 && (magic != kLlmcMagics[1] || version != 7)) {
    return Wrong(absl::StrCat("has magic ", magic, " and version ", version,
                              "; allowed of llm.c: 20240520 and 1, 20240801 and 7"));
  }
  TANDEM_ASSIGN_OR_RETURN(TokenFile file,
                          Behind(kLlmcHeaderBytes, bytes, is_u16 ? TokenType::kU16 : TokenType::kU32));
  if (file.tokens != tokens) {
    return Wrong(absl::StrCat("says that it has ", tokens, " tokens, and has ", file.tokens,
                              ": it was cut off, or is another file"));
  }
  return file;
}

TextFormat FormatOf(const std::string& path, TextFormat format) {
  if (format != TextFormat::kAuto) {
    return format;
  }
  if (IsDataset(path)) {
    return TextFormat::kPrepared;
  }
  if (!PairPrefixes(path).empty()) {
    return TextFormat::kMegatron;
  }
  const absl::StatusOr<std::vector<std::string>> files = platform::ListFiles(path);
  if (!files.ok()) {
    return TextFormat::kBytes;  // the reader of bytes reports what is wrong
  }
  const std::string& first = files->front();
  if ((first.ends_with(kTokens) || first.ends_with(kIndex)) && !PairPrefixes(first).empty()) {
    return TextFormat::kMegatron;
  }
  const absl::StatusOr<Beginning> beginning = ReadBeginning(first, kLlmcHeaderBytes);
  if (!beginning.ok()) {
    return TextFormat::kBytes;
  }
  if (beginning->bytes.starts_with(kNumpyMagic)) {
    return TextFormat::kNpy;
  }
  return IsLlmc(beginning->bytes) ? TextFormat::kLlmc : TextFormat::kBytes;
}

absl::StatusOr<TokenText> ReadTokenText(const std::string& path, TextFormat format,
                                        std::optional<TokenType> type) {
  TokenText text{.format = format};
  if (format == TextFormat::kPrepared) {
    TANDEM_ASSIGN_OR_RETURN(text.dataset, ReadDataset(path));
    for (const Dataset::Shard& shard : text.dataset->shards) {
      const std::string prefix = absl::StrCat(path, path.ends_with('/') ? "" : "/", shard.name);
      const std::string mask = prefix + kMask;
      if (IsFile(mask) != text.dataset->has_masks) {
        return Named(mask, Wrong(text.dataset->has_masks
                                     ? "is missing, though dataset.json says how many tokens count"
                                     : "is there, though dataset.json does not say how many tokens count"));
      }
      text.files.push_back({.path = prefix + kTokens,
                            .index = prefix + kIndex,
                            .mask = text.dataset->has_masks ? mask : "",
                            .type = text.dataset->token_type,
                            .tokens = shard.tokens,
                            .documents = shard.documents});
    }
    text.tokens = text.dataset->tokens;
    return text;
  }
  const std::vector<std::string> prefixes =
      format == TextFormat::kMegatron ? PairPrefixes(path) : std::vector<std::string>();
  if (!prefixes.empty()) {
    TANDEM_ASSIGN_OR_RETURN(text.files.emplace_back(), ReadPair(prefixes.front()));
  } else {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> paths, TokenPaths(path, format));
    for (const std::string& file : paths) {
      TANDEM_ASSIGN_OR_RETURN(text.files.emplace_back(), format == TextFormat::kMegatron
                                                             ? ReadPair(WithoutSuffix(file))
                                                             : ReadSingle(file, format, type));
    }
  }
  std::erase_if(text.files, [](const TokenFile& file) { return file.tokens == 0; });
  for (const TokenFile& file : text.files) {
    text.tokens += file.tokens;
    if (file.tokens > kMostTokensOfText || text.tokens > kMostTokensOfText) {
      return Named(path, Wrong(absl::StrCat("has more than ", kMostTokensOfText, " tokens")));
    }
  }
  if (text.files.empty()) {
    return Named(path, Wrong("has no token"));
  }
  return text;
}

bool HaveSameTokenizer(const TokenText& a, const TokenText& b) {
  return !a.dataset.has_value() || !b.dataset.has_value() ||
         a.dataset->tokenizer_digest == b.dataset->tokenizer_digest;
}

std::vector<std::string> PathsReadFor(const std::string& path) {
  std::set<std::string> paths;
  const auto add_pairs_of = [&](const std::string& name) {
    for (const std::string& prefix : PairPrefixes(name)) {
      paths.insert({prefix + kTokens, prefix + kIndex});
    }
  };
  add_pairs_of(path);
  if (IsDataset(path)) {
    const std::string folder = absl::StrCat(path, path.ends_with('/') ? "" : "/");
    paths.insert(folder + kDatasetFile);
    if (const absl::StatusOr<Dataset> dataset = ReadDataset(path); dataset.ok()) {
      for (const Dataset::Shard& shard : dataset->shards) {
        const std::string prefix = folder + shard.name;
        paths.insert({prefix + kTokens, prefix + kIndex, prefix + kMask});
      }
    }
  }
  const absl::StatusOr<std::vector<std::string>> files = platform::ListFiles(path);
  std::error_code error;
  const bool has_partners = std::filesystem::is_directory(path, error);  // a folder has both files of a pair
  for (const std::string& file : files.ok() ? *files : std::vector<std::string>{}) {
    paths.insert(file);
    if (!has_partners && (file.ends_with(kTokens) || file.ends_with(kIndex))) {
      add_pairs_of(file);
    }
  }
  return {paths.begin(), paths.end()};
}

int64_t EarliestHeldOut(const TokenText& text, double fraction, int64_t sequence_length) {
  const int64_t position = text.tokens - HeldOutTokens(text.tokens, fraction, sequence_length);
  int64_t begin = 0;
  for (const TokenFile& file : text.files) {
    if (position < begin + file.tokens) {
      return file.index.empty() ? position : begin + DocumentInFile(file, position - begin);
    }
    begin += file.tokens;
  }
  return position;
}

}  // namespace tandem::data
