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
  std::string index;  // path of its .idx; empty: none
  std::string mask;   // path of its .mask; empty: none
  int64_t begin = 0;  // byte of its first token
  TokenType type = TokenType::kU16;
  int64_t tokens = 0;
  int64_t documents = 0;  // of the index
};

struct TokenText {
  TextFormat format = TextFormat::kPrepared;
  std::optional<Dataset> dataset;  // of prepared, which alone says its tokenizer
  std::vector<TokenFile> files;
  int64_t tokens = 0;
};

// What `path` is where a job says `format`: itself, or for auto what its files show; bytes where they show
// nothing.
TextFormat FormatOf(const std::string& path, TextFormat format);

// Errors are one line that names the file. Requires a format of tokens; type: of flat.
absl::StatusOr<TokenText> ReadTokenText(const std::string& path, TextFormat format,
                                        std::optional<TokenType> type);

// Whether one tokenizer made both, as far as they say it.
bool HaveSameTokenizer(const TokenText& a, const TokenText& b);

// All that a job may read where it names `path`, whatever format it says: the files that it lists, those of
// pairs and of dataset.json. Empty where nothing is there.
std::vector<std::string> PathsReadFor(const std::string& path);

// Of the beginning of a file of `bytes`: its tokens, or in words that follow its name why it has none.
absl::StatusOr<TokenFile> ParseNumpyHeader(std::string_view beginning, int64_t bytes);
absl::StatusOr<TokenFile> ParseLlmcHeader(std::string_view beginning, int64_t bytes);

}  // namespace tandem::data
