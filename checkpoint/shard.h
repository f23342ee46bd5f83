// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/elements.h"
#include "checkpoint/manifest.h"
#include "fsdp/slice.h"

namespace tandem::checkpoint {

// What this rank holds of an array, on the host or a device: elements [begin, begin + data.size()) of a
// slice.
struct Shard {
  std::string name;  // of the parameter
  std::string kind = kWeight;
  fsdp::Shape shape;  // of the whole array
  fsdp::Slice slice;  // without ranges: the whole array
  int64_t begin = 0;
  Elements data;
  // The element type that a save converts to; unset: data's type.
  std::optional<device::ElementKind> type = std::nullopt;
};

device::ElementKind TypeInFile(const Shard& shard);

// "model.norm.weight/exp_avg"
std::string TensorName(const Shard& shard);

// The range of its elements in its slice.
fsdp::Range ElementsOf(const Shard& shard);

// Whether its slice is one of its shape, and its data are elements of that.
bool IsPart(const Shard& shard);

}  // namespace tandem::checkpoint
