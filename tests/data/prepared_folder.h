// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tandem::data {

// Bytes of what `tandem data prepare` makes, written here from the description of the formats alone.

using Document = std::vector<int64_t>;

template <typename Number>
void Append(std::string& bytes, int64_t value) {
  const auto number = static_cast<Number>(value);
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

inline std::string BinOf(const std::vector<Document>& documents, bool u16) {
  std::string bytes;
  for (const Document& document : documents) {
    for (const int64_t token : document) {
      u16 ? Append<uint16_t>(bytes, token) : Append<int32_t>(bytes, token);
    }
  }
  return bytes;
}

inline std::string IdxOf(const std::vector<Document>& documents, bool u16) {
  std::string bytes("MMIDIDX\0\0", 9);
  const auto count = static_cast<int64_t>(documents.size());
  Append<uint64_t>(bytes, 1);
  Append<uint8_t>(bytes, u16 ? 8 : 4);
  Append<uint64_t>(bytes, count);
  Append<uint64_t>(bytes, count + 1);
  for (const Document& document : documents) {
    Append<int32_t>(bytes, static_cast<int64_t>(document.size()));
  }
  int64_t at = 0;
  for (const Document& document : documents) {
    Append<int64_t>(bytes, at);
    at += static_cast<int64_t>(document.size()) * (u16 ? 2 : 4);
  }
  for (int64_t i = 0; i <= count; ++i) {
    Append<int64_t>(bytes, i);
  }
  return bytes;
}

// dataset.json of these shards, by a tokenizer of 1,000 ids.
inline std::string DescriptionOf(const std::vector<std::vector<Document>>& shards, bool u16) {
  std::string list;
  size_t documents = 0;
  size_t tokens = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    size_t own = 0;
    for (const Document& document : shards[i]) {
      own += document.size();
    }
    absl::StrAppend(&list, i == 0 ? "" : ", ", R"({"name": "tokens-)", i, R"(", "documents": )",
                    shards[i].size(), R"(, "tokens": )", own, "}");
    documents += shards[i].size();
    tokens += own;
  }
  return absl::StrCat(
      R"({"format": "tandem-dataset", "version": 1, "tokenizer": {"kind": "huggingface", "path": "/t", "sha256": ")",
      std::string(64, 'a'), R"(", "vocabulary": 1000, "bos": null, "eos": 3, "pad": null}, "token_type": ")",
      u16 ? "u16" : "i32", R"(", "documents": )", documents, R"(, "tokens": )", tokens, R"(, "shards": [)",
      list, R"(], "inputs": [], "options": {}, "made_by": "a test"})");
}

// Folder: with a method Write(name, content). The dataset lies in its subfolder `name`.
template <typename Folder>
std::string WriteDataset(const Folder& folder, const std::string& name,
                         const std::vector<std::vector<Document>>& shards, bool u16 = true) {
  for (size_t i = 0; i < shards.size(); ++i) {
    folder.Write(absl::StrCat(name, "/tokens-", i, ".bin"), BinOf(shards[i], u16));
    folder.Write(absl::StrCat(name, "/tokens-", i, ".idx"), IdxOf(shards[i], u16));
  }
  folder.Write(name + "/dataset.json", DescriptionOf(shards, u16));
  return absl::StrCat(folder.path(), "/", name);
}

// Adds masks to such a dataset: counted[i] says which tokens of shard i count as targets.
template <typename Folder>
void WriteMasks(const Folder& folder, const std::string& name,
                const std::vector<std::vector<Document>>& shards,
                const std::vector<std::vector<bool>>& counted, bool u16 = true) {
  size_t sum = 0;
  for (size_t i = 0; i < counted.size(); ++i) {
    std::string mask((counted[i].size() + 7) / 8, '\0');
    for (size_t token = 0; token < counted[i].size(); ++token) {
      mask[token / 8] = static_cast<char>(mask[token / 8] | (counted[i][token] ? 1 << (token % 8) : 0));
      sum += counted[i][token] ? 1 : 0;
    }
    folder.Write(absl::StrCat(name, "/tokens-", i, ".mask"), mask);
  }
  std::string description = DescriptionOf(shards, u16);
  description.insert(description.find("\"inputs\""), absl::StrCat("\"counted\": ", sum, ", "));
  folder.Write(name + "/dataset.json", description);
}

}  // namespace tandem::data
