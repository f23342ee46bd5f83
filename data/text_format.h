// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::data {

// The format of the files of a text (token_files.h). kBytes: each byte is a token.
enum class TextFormat : uint8_t { kAuto, kPrepared, kMegatron, kNpy, kLlmc, kBytes, kFlat };

// Whether texts of this format have an index of documents, so that data.end_of_document does not apply.
constexpr bool HasIndex(TextFormat format) {
  return format == TextFormat::kPrepared || format == TextFormat::kMegatron;
}

enum class TokenType : uint8_t { kU8, kU16, kI32, kU32, kI64 };

constexpr int64_t BytesOf(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return 1;
    case TokenType::kU16:
      return 2;
    case TokenType::kI32:
    case TokenType::kU32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  return 0;
}

}  // namespace tandem::data
