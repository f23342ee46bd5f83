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

// Returns the beginning of a file: the header, padded to a multiple of 8 bytes. The data of the tensors must
// follow in this order without gaps, numel × BytesOfDtype(dtype) bytes each. Returns InvalidArgument if names
// are not unique or dtypes are unknown.
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

// Returns how many bytes from the beginning of a file of `file_bytes` bytes ReadSafetensorsHeader needs.
// `begin` has the first kSafetensorsLengthBytes of the file or more; all, if the file is shorter. Returns
// InvalidArgument if no safetensors file can begin like this.
absl::StatusOr<int64_t> SafetensorsHeaderBytes(std::string_view begin, int64_t file_bytes);

// Reads the header of a file of `file_bytes` bytes, which need not be in memory: `begin` must have
// SafetensorsHeaderBytes of it. Before it allocates memory whose size the file gives, it checks the length of
// the header, that names are unique and dtypes known, that sizes do not overflow, and that the tensors cover
// the buffer without gap, overlap or a byte behind. Returns InvalidArgument with the reason.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(std::string_view begin, int64_t file_bytes);

}  // namespace tandem::checkpoint
