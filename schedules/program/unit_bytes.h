// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Sizes of a unit's buffers in bytes. Each buffer is a concatenation with one section for each class of the
// unit.

// Which elements of each class a buffer has: all of them, padded; a rank's inner shard; or, if the optimizer
// is sharded over both axes, the shard that a rank updates.
enum class Extent : uint8_t { kAll, kShard, kOuterShard };

// `type` is the element type of the buffer's role, such as &UnitPrecision::main.
int64_t BytesOf(const BuildOptions& options, const Outline& outline, UnitId unit, Extent extent,
                int UnitPrecision::*type);

// The bytes [first, second) of a part in a buffer with all of the unit's elements.
std::pair<int64_t, int64_t> RangeOf(const BuildOptions& options, const Outline& outline, UnitId unit,
                                    const PartRange& part, int UnitPrecision::*type);

// All parts of the unit, as parts of a buffer with all of its elements.
std::vector<BufferPart> PartsOf(const BuildOptions& options, const Outline& outline, UnitId unit,
                                int UnitPrecision::*type);

// Whether optimizer steps also write a copy of the updated weights in the compute types
// (BufferKind::kPublished), which gathers or nodes then read. True if a class has a compute type other than
// its main type, and the unit is not frozen. The copy has all classes.
bool IsPublished(const Unit& unit);

// Whether the part's contribution has another type than the main type. Then a gradient that is a sum is added
// up in the main type and rounded once (Round).
bool IsRounded(const Unit& unit, int part);

}  // namespace tandem::schedules
