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

// Returns the bytes of an element of a type of the format ("F32", "F64", "BF16", …), or 0 for an unknown name
// or a type whose elements are not whole bytes.
int64_t BytesOfDtype(std::string_view dtype);

struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

// Returns the header of a file, including its length and padding to a multiple of 8 bytes. The data of the
// tensors must follow in this order without gaps, numel × BytesOfDtype(dtype) bytes each. Returns
// InvalidArgument if names are not unique or dtypes are unknown.
absl::StatusOr<std::string> SafetensorsBeginning(const std::vector<TensorToWrite>& tensors,
                                                 const std::map<std::string, std::string>& metadata);

// The type, shape and location of a tensor in a file.
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

// Returns the number of leading bytes of a file that ReadSafetensorsHeader needs. `begin` must have at least
// the first kSafetensorsLengthBytes of the file, or the whole file if that is shorter; `file_bytes` is the
// size of the file. Returns InvalidArgument if no safetensors file can begin like this.
absl::StatusOr<int64_t> SafetensorsHeaderBytes(std::string_view begin, int64_t file_bytes);

// Reads the header of a file of `file_bytes` bytes, which need not be in memory: `begin` must have
// SafetensorsHeaderBytes of it. Validates the file before it allocates memory whose size comes from it: the
// length of the header, unique names, known dtypes, sizes without overflow, and tensors that cover the buffer
// without gaps, overlaps or trailing bytes. Returns InvalidArgument with the reason.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(std::string_view begin, int64_t file_bytes);

}  // namespace tandem::checkpoint
