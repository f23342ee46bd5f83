// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::data {

// The index of a file of tokens, in Megatron-LM's format (little-endian, without padding):
//
//   0       9 bytes  MMIDIDX\0\0
//   9       u64      version, 1
//   17      u8       type of a token: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
//   18      u64      S, the number of sequences
//   26      u64      D, the length of the document index
//   34      i32[S]   tokens of each sequence
//   34+4S   i64[S]   offset of each sequence in the file of tokens, in bytes
//   34+12S  i64[D]   document index: the first sequence of each of D - 1 documents, and S at the end
//   ...     i8[S]    modes; only in files of multimodal data
//
// For Tandem each sequence is a document, as for Megatron's GPT data; the document index is not used.

inline constexpr int64_t kIndexHeaderBytes = 34;

struct IndexHeader {
  int type_code = 0;
  int64_t token_bytes = 0;
  int64_t sequences = 0;
  int64_t document_entries = 0;

  int64_t LengthAt(int64_t sequence) const { return kIndexHeaderBytes + 4 * sequence; }
  int64_t PointerAt(int64_t sequence) const { return kIndexHeaderBytes + 4 * sequences + 8 * sequence; }
  int64_t EntryAt(int64_t entry) const { return kIndexHeaderBytes + 12 * sequences + 8 * entry; }
};

inline constexpr int kU16Code = 8;
inline constexpr int kI32Code = 4;

// Parses the first kIndexHeaderBytes of a file of `file_bytes` bytes, or all of it if it is shorter. Returns
// InvalidArgument, worded to follow the file's name, if the file is not an index of integers, or if its size
// contradicts its header.
absl::StatusOr<IndexHeader> ParseIndexHeader(std::string_view beginning, int64_t file_bytes);

// Estimates which of `sequences` sequences contains token `position` of `tokens`, as if all were equally
// long.
int64_t SequenceNear(int64_t sequences, int64_t position, int64_t tokens);

// The first of `sequences` sequences that begins at or after token `position` of `tokens`; `sequences` if
// there is none. start_of(i) returns the token at which sequence i begins. The search starts at SequenceNear
// and widens from there, so that most of its reads are close together, and the disk is read once.
int64_t SequenceFrom(int64_t sequences, int64_t position, int64_t tokens,
                     const std::function<int64_t(int64_t)>& start_of);

// Reads a number of a file, which need not be aligned.
template <typename Number>
Number NumberAt(const char* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}

}  // namespace tandem::data
