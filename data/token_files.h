// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset_json.h"
#include "data/text_format.h"

namespace tandem::data {

// Describes texts that are stored as files of tokens, by the first bytes of these files. The formats:
//
// * prepared: a folder with dataset.json (dataset.h).
// * megatron: PATH.bin and PATH.idx (indexed_file.h); the text's path is one of these, or PATH. A sequence is
//   a document.
// * npy: integers in numpy's format.
// * llmc: a header of 256 i32 of llm.c, and tokens: u16 (magic 20240520, version 1) or u32 (20240801, 7).
// * flat: integers without a header, whose type the job states.
//
// In all formats but the first, a text may be a folder or a glob of such files, which are read in the order
// of their paths. All numbers are little-endian.

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
  std::optional<Dataset> dataset;  // only of kPrepared; the other formats do not state their tokenizer
  std::vector<TokenFile> files;
  int64_t tokens = 0;
};

// The format of the text at `path`: `format`, unless that is kAuto; then the format that is recognised in the
// files, or kBytes if none is.
TextFormat FormatOf(const std::string& path, TextFormat format);

// Describes the text at `path`, from dataset.json or from the headers of its files. Errors are one line,
// which contains the file's path. Requires a format of tokens; `type` is used for kFlat.
absl::StatusOr<TokenText> ReadTokenText(const std::string& path, TextFormat format,
                                        std::optional<TokenType> type);

// Whether both texts were made by the same tokenizer, as far as is known: true also if one does not state its
// tokenizer.
bool HaveSameTokenizer(const TokenText& a, const TokenText& b);

// All files that a job with a text at `path` may read, whatever its format: the files that the path lists,
// the other files of pairs, and the files of dataset.json. Empty if nothing is at the path.
std::vector<std::string> PathsReadFor(const std::string& path);

// The first token that the held-out end of a text may have, found without reading a token. If the index can
// be read, it is exact: the first token within the last HeldOutTokens at which a document begins. Otherwise
// it is the first of the last HeldOutTokens.
int64_t EarliestHeldOut(const TokenText& text, double fraction, int64_t sequence_length);

// Parse the first bytes of a file of `bytes` bytes. Errors are worded to follow the file's name.
absl::StatusOr<TokenFile> ParseNumpyHeader(std::string_view beginning, int64_t bytes);
absl::StatusOr<TokenFile> ParseLlmcHeader(std::string_view beginning, int64_t bytes);

}  // namespace tandem::data
