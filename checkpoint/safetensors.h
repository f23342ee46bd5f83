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

// Bytes of an element of a type that the format names: "F32", "F64", "BF16", …; 0 for other names, and for
// types whose elements are not whole bytes.
int64_t BytesOfDtype(std::string_view dtype);

struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

// The beginning of a file. The data of the tensors must follow in this order without gaps, numel ×
// BytesOfDtype(dtype) bytes each. They are 8-byte aligned in the file as far as element sizes allow. Returns
// InvalidArgument if names are not unique or dtypes are unknown.
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

// How many bytes ReadSafetensorsHeader needs of a file of `file_bytes` bytes that begins with `begin`, which
// has at least kSafetensorsLengthBytes if the file does. Returns InvalidArgument if no safetensors file can
// begin like this.
absl::StatusOr<int64_t> SafetensorsHeaderBytes(std::string_view begin, int64_t file_bytes);

// Reads the header of a file of `file_bytes` bytes, which need not be in memory: `begin` must have
// SafetensorsHeaderBytes of it. Checks everything that the format demands before it allocates memory by
// numbers from the file: header length, unique names, known dtypes, sizes with overflow, a buffer covered
// without gap or overlap, and no byte behind it. Returns InvalidArgument with the reason.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(std::string_view begin, int64_t file_bytes);

}  // namespace tandem::checkpoint
