// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/text_format.h"

namespace tandem::data {

// Files of tokens, and what each says of itself. What is read of them here is a few bytes at their beginning.
//
// * prepared: a folder with dataset.json (dataset.h).
// * megatron: PATH.bin and PATH.idx (indexed_file.h), named by either or PATH; a sequence is a document.
// * npy: whole numbers in numpy's format.
// * llmc: a header of 256 i32 of llm.c, and tokens: u16 (magic 20240520, version 1) or u32 (20240801, 7).
// * flat: numbers without a header, of a type that the job says.
//
// Of all but the first a text may be a folder or a glob of such files: one after the other, in the order of
// their paths. Little-endian throughout.

struct TokenFile {
  std::string path;
  std::string index;  // path of its .idx; empty if it has none
  std::string mask;   // path of its .mask; empty if it has none
  int64_t begin = 0;  // offset of its first token in bytes
  TokenType type = TokenType::kU16;
  int64_t tokens = 0;
  int64_t documents = 0;  // as its index says
};

struct TokenText {
  TextFormat format = TextFormat::kPrepared;
  std::optional<Dataset> dataset;  // only of kPrepared; the other formats do not name their tokenizer
  std::vector<TokenFile> files;
  int64_t tokens = 0;
};

// The format of the text at `path` if the job says `format`: that format, or for kAuto the one that the files
// show, and kBytes if they show none.
TextFormat FormatOf(const std::string& path, TextFormat format);

// Reads the headers of a text's files. Errors are one line that names the file. Requires a format of tokens;
// `type` is the type of kFlat.
absl::StatusOr<TokenText> ReadTokenText(const std::string& path, TextFormat format,
                                        std::optional<TokenType> type);

// Whether one tokenizer made both, as far as they name it.
bool HaveSameTokenizer(const TokenText& a, const TokenText& b);

// All files that a job which names `path` may read, whatever format it says: those that the path lists, and
// those that belong to pairs and to dataset.json. Empty if nothing is there.
std::vector<std::string> PathsReadFor(const std::string& path);

// Says at which token the held-out end of a text begins, from its indices and without reading a token: at the
// first document that begins once HeldOutTokens are left. If no index says documents, or it cannot be read,
// it is that position, and the end begins there or later.
int64_t EarliestHeldOut(const TokenText& text, double fraction, int64_t sequence_length);

// Parses the beginning of a file of `bytes` bytes. Errors are worded to follow the file's name.
absl::StatusOr<TokenFile> ParseNumpyHeader(std::string_view beginning, int64_t bytes);
absl::StatusOr<TokenFile> ParseLlmcHeader(std::string_view beginning, int64_t bytes);

}  // namespace tandem::data
