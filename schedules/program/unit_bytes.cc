// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/unit_bytes.h"

#include <algorithm>

namespace tandem::schedules {
namespace {

int64_t ElementsOf(const ClassSizes& sizes, Extent extent, int inner) {
  switch (extent) {
    case Extent::kAll:
      return sizes.shard_elements * inner;
    case Extent::kShard:
      return sizes.shard_elements;
    case Extent::kOuterShard:
      break;
  }
  return sizes.outer_shard_elements;
}

// Of the classes before `end`.
int64_t BytesBefore(const BuildOptions& options, const Outline& outline, UnitId id, size_t end, Extent extent,
                    int UnitPrecision::*type) {
  const Unit& unit = outline.units[id];
  const int inner = AxesOf(options, unit).inner;
  int64_t bytes = 0;
  for (size_t c = 0; c < end; ++c) {
    bytes += ElementsOf(options.units[id].classes.at(c), extent, inner) * unit.classes[c].precision.*type;
  }
  return bytes;
}

}  // namespace

int64_t BytesOf(const BuildOptions& options, const Outline& outline, UnitId unit, Extent extent,
                int UnitPrecision::*type) {
  return BytesBefore(options, outline, unit, outline.units[unit].classes.size(), extent, type);
}

std::pair<int64_t, int64_t> RangeOf(const BuildOptions& options, const Outline& outline, UnitId unit,
                                    const PartRange& part, int UnitPrecision::*type) {
  const int64_t begin = BytesBefore(options, outline, unit, part.of_class, Extent::kAll, type);
  const int element = outline.units[unit].classes.at(part.of_class).precision.*type;
  return {begin + part.begin * element, begin + part.end * element};
}

std::vector<BufferPart> PartsOf(const BuildOptions& options, const Outline& outline, UnitId unit,
                                int UnitPrecision::*type) {
  std::vector<BufferPart> parts;
  for (const PartRange& part : outline.units[unit].parts) {
    const auto [begin, end] = RangeOf(options, outline, unit, part, type);
    parts.push_back({part.name, begin, end});
  }
  return parts;
}

bool IsPublished(const Unit& unit) {
  return !unit.frozen && std::any_of(unit.classes.begin(), unit.classes.end(), [](const UnitClass& each) {
    return each.precision.compute != each.precision.main;
  });
}

bool IsRounded(const Unit& unit, int part) {
  const UnitPrecision& precision = unit.classes.at(unit.parts.at(part).of_class).precision;
  return precision.transport != precision.main;
}

}  // namespace tandem::schedules
