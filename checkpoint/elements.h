// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/element_kind.h"
#include "device/memory.h"

namespace tandem::device {
class Device;
}

namespace tandem::checkpoint {

// Contiguous elements, in memory that something else owns.
struct Elements {
  device::Memory memory;
  device::ElementKind type = device::ElementKind::kFloat;
  device::Device* device = nullptr;  // owner of the memory; null: the host

  int64_t size() const { return memory.bytes / device::BytesOf(type); }
  Elements Part(int64_t begin, int64_t elements) const;
};

// Returns the name of a type in safetensors. Throws CheckpointError if checkpoints cannot hold the type.
std::string SafetensorsDtype(device::ElementKind type);

// Copies all bytes of `from` into `to`, from byte `at` of `to` on. Returns when the copy is complete.
void Write(std::string_view from, const Elements& to, int64_t at);

// Overwrites all elements of `to` with those of `from`, converted from the safetensors type `dtype`: F16,
// BF16, F32 or F64. Returns when the copy is complete.
void WriteConverted(std::string_view from, std::string_view dtype, const Elements& to);

// Sets `out` to all elements of `from`, converted to `type`. Returns when the copy is complete.
void Read(const Elements& from, device::ElementKind type, std::string& out);

}  // namespace tandem::checkpoint
