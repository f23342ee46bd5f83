// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Bytes of a unit's buffers, which are those of its classes behind each other.

// What of the elements of each class a buffer has: all of them, padded; a rank's inner shard; what a rank
// updates where the optimizer is sharded over both axes.
enum class Extent : uint8_t { kAll, kShard, kOuterShard };

// type: the element type of the buffer's role (&UnitPrecision::main).
int64_t BytesOf(const BuildOptions& options, const Outline& outline, UnitId unit, Extent extent,
                int UnitPrecision::*type);

// Bytes [first, second) of a part in a buffer that has all of the unit's elements.
std::pair<int64_t, int64_t> RangeOf(const BuildOptions& options, const Outline& outline, UnitId unit,
                                    const PartRange& part, int UnitPrecision::*type);

// All of its parts in such a buffer.
std::vector<BufferPart> PartsOf(const BuildOptions& options, const Outline& outline, UnitId unit,
                                int UnitPrecision::*type);

// Whether each step writes a copy of what it updates for gathers, or for nodes: all of the unit in the
// compute types. Not where these are the main types.
bool IsPublished(const Unit& unit);

// Whether the gradient of the part, where it is a sum, is collected in the main type before it is rounded.
bool IsRounded(const Unit& unit, int part);

}  // namespace tandem::schedules
