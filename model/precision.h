// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem::model {

// An element type in which nodes can compute.
enum class ComputeType : uint8_t { kFp32, kFp64, kBf16 };

int ElementBytes(ComputeType type);
const char* ToText(ComputeType type);  // "fp32"

// The type of statistics, loss terms and main weights for computation in `compute`: fp64 for fp64, otherwise
// fp32.
ComputeType MainType(ComputeType compute);

// The element types of a unit's buffers, by role. Parts of a unit may differ (unit_parameters.h).
// schedules::UnitPrecision has only their sizes.
struct UnitTypes {
  ComputeType main = ComputeType::kFp32;       // weights, moments, accumulator
  ComputeType compute = ComputeType::kFp32;    // gathered parameters, and what the unit's nodes compute in
  ComputeType transport = ComputeType::kFp32;  // contributions and staging (docs/glossary.md)
  bool operator==(const UnitTypes&) const = default;
};

// The types of a part that stays in the main type.
inline UnitTypes InMainType(const UnitTypes& types) {
  return {.main = types.main, .compute = types.main, .transport = types.main};
}

// The element types of a model. Hidden states have the same type everywhere. A unit may compute in another
// type; its nodes then convert the hidden states that they read and write.
struct Precision {
  Precision(ComputeType compute) : Precision(compute, compute) {}  // NOLINT: a model of one type
  Precision(ComputeType compute, ComputeType transport)
      : common{.main = MainType(compute), .compute = compute, .transport = transport} {}

  ComputeType hidden() const { return common.compute; }
  const UnitTypes& Of(const std::string& unit) const;

  UnitTypes common;
  std::map<std::string, UnitTypes> units;  // the units that differ from `common`, by name
  bool repeats = true;  // whether only kernels run whose results have the same bits each time
};

// The element types of a node's tensors.
struct NodeTypes {
  NodeTypes(const Precision& precision, const std::string& unit)
      : hidden(precision.hidden()), unit(precision.Of(unit)), repeats(precision.repeats) {}

  ComputeType hidden;  // of values between nodes
  UnitTypes unit;      // of the node's unit
  bool repeats;        // Precision::repeats
};

}  // namespace tandem::model
