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
  fsdp::Shape shape;  // of the whole
  fsdp::Slice slice;  // no ranges: the whole
  int64_t begin = 0;
  Elements data;
  // Of the array's elements, which a save converts to; none: data's.
  std::optional<device::ElementKind> type = std::nullopt;
};

device::ElementKind TypeInFile(const Shard& shard);

// "model.norm.weight/exp_avg"
std::string TensorName(const Shard& shard);

// Of its slice.
fsdp::Range ElementsOf(const Shard& shard);

// Whether its slice is one of its shape, and its data are elements of that.
bool IsPart(const Shard& shard);

}  // namespace tandem::checkpoint
