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

// Elements behind each other, in memory that something else owns.
struct Elements {
  device::Memory memory;
  device::ElementKind type = device::ElementKind::kFloat;
  device::Device* device = nullptr;  // whose memory it is; null: the host's

  int64_t size() const { return memory.bytes / device::BytesOf(type); }
  Elements Part(int64_t begin, int64_t elements) const;
};

// A type of elements as safetensors names it. Throws CheckpointError for those that checkpoints do not have.
std::string SafetensorsDtype(device::ElementKind type);

// Copies bytes to those of `to` from byte `at` on. Returns when they are there.
void Write(std::string_view from, const Elements& to, int64_t at);

// The same of all of its elements, from ones that are of a type of safetensors: F16, BF16, F32 or F64.
void WriteConverted(std::string_view from, std::string_view dtype, const Elements& to);

// All elements, as ones of `type`, in `out`. Returns when they are there.
void Read(const Elements& from, device::ElementKind type, std::string& out);

}  // namespace tandem::checkpoint
