// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::checkpoint {

// The safetensors format (Hugging Face): u64 header length, JSON header, one buffer. Little-endian.

// "F32", "F64", "BF16", …: the format's own names; 0: not one of them, or one whose elements are not whole
// bytes.
int64_t BytesOfDtype(std::string_view dtype);

struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

// The beginning of a file; the tensors' data follow, in this order, one behind the other, numel ×
// BytesOfDtype(dtype) bytes each. They are 8-byte aligned in the file as far as element sizes keep it so.
// InvalidArgument for names that are not unique or dtypes that are unknown.
absl::StatusOr<std::string> SafetensorsBeginning(const std::vector<TensorToWrite>& tensors,
                                                 const std::map<std::string, std::string>& metadata);

// Where a tensor lies in its file.
struct TensorPlace {
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the file's beginning
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, TensorPlace> tensors;
  std::map<std::string, std::string> metadata;
};

inline constexpr int64_t kSafetensorsLengthBytes = 8;

// How many bytes ReadSafetensorsHeader needs of a file of `file_bytes` that begins with `begin`,
// kSafetensorsLengthBytes at least where the file has them. InvalidArgument where no such file can begin so.
absl::StatusOr<int64_t> SafetensorsHeaderBytes(std::string_view begin, int64_t file_bytes);

// Of a file of `file_bytes`, which need not be in memory: requires as many bytes of its beginning as
// SafetensorsHeaderBytes says. Checks all that the format demands before anything is allocated by what the
// file says: header length, unique names, known dtypes, sizes with overflow, a buffer covered without hole or
// overlap, no byte behind it. InvalidArgument with the reason.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(std::string_view begin, int64_t file_bytes);

}  // namespace tandem::checkpoint
