// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/text_format.h"

namespace tandem::data {

// What `tandem data prepare` makes: a folder of shards, each of tokens (NAME.bin) and of an index of its
// documents (NAME.idx, indexed_file.h), and dataset.json, which describes them:
//
//   {"format": "tandem-dataset", "version": 1,
//    "tokenizer": {"kind": "huggingface" | "bytes", "path": folder or file, "sha256": of tokenizer.json,
//                  "vocabulary": largest id + 1, "bos", "eos", "pad": ids or null,
//                  "adds_bos", "adds_eos": whether each document begins or ends with it},
//    "token_type": "u16" | "i32", "documents", "tokens",
//    "counted": how many tokens count as targets; absent: all, and there are no masks,
//    "never_counted": an id that never counts as a target, or absent,
//    "shards": [{"name", "documents", "tokens", "xxh3": {"bin", "idx"}}],
//    "inputs": [{"path", "bytes", "xxh3", "documents", "left_out": {kind: number}}],
//    "options": {...}, "made_by": "tandem 0.1.0"}
//
// If some tokens do not count as targets, each shard also has a file NAME.mask: one bit for each token, the
// least significant of a byte first, 1 if the token counts.
//
// Shards follow each other in their order in the list. Sizes are in bytes, numbers are integers, xxh3 are 32
// hexadecimal digits of XXH3-128.

inline constexpr char kDatasetFile[] = "dataset.json";

struct Dataset {
  struct Shard {
    std::string name;  // of a file in the folder, without .bin and .idx
    int64_t documents = 0;
    int64_t tokens = 0;
  };

  std::string tokenizer_digest;  // SHA-256 of its tokenizer.json; "bytes" if a token is a byte
  std::string tokenizer_path;    // when the text was prepared; for messages and for exports of the model
  int64_t vocabulary = 0;
  std::optional<int64_t> bos;
  std::optional<int64_t> eos;
  std::optional<int64_t> pad;
  TokenType token_type = TokenType::kU16;
  int64_t documents = 0;
  int64_t tokens = 0;
  std::vector<Shard> shards;
  bool has_masks = false;
  std::optional<int64_t> never_counted;
};

// Whether `path` is a folder with a dataset.json.
bool IsDataset(const std::string& path);

// Parses a description. Returns InvalidArgument, in one line, if the text is not a description or contradicts
// itself. Unknown keys are ignored.
absl::StatusOr<Dataset> ParseDataset(std::string_view text);

// Reads the dataset.json of the folder. Errors name the file.
absl::StatusOr<Dataset> ReadDataset(const std::string& folder);

}  // namespace tandem::data
