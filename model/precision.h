// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem::model {

// A type of elements, and what a unit's nodes compute in.
enum class ComputeType : uint8_t { kFp32, kFp64, kBf16 };

int ElementBytes(ComputeType type);
const char* ToText(ComputeType type);  // "fp32"

// Statistics, losses' terms and main weights of what is computed in `compute`: fp64 of fp64, else fp32.
ComputeType MainType(ComputeType compute);

// Element types of a unit's buffers, by role; parts may differ (unit_classes.h). Sizes alone are
// schedules::UnitPrecision.
struct UnitTypes {
  ComputeType main = ComputeType::kFp32;       // weights, moments, accumulator
  ComputeType compute = ComputeType::kFp32;    // gathered parameters, and what the unit's nodes compute in
  ComputeType transport = ComputeType::kFp32;  // contribution and staging
  bool operator==(const UnitTypes&) const = default;
};

// Those of a part that stays in the main type.
inline UnitTypes InMainType(const UnitTypes& types) {
  return {.main = types.main, .compute = types.main, .transport = types.main};
}

// The element types of a model. Hidden states, which one node writes and others read, are of one type; a unit
// may compute in another, and then its nodes convert what they read and write.
struct Precision {
  Precision(ComputeType compute) : Precision(compute, compute) {}  // NOLINT: a model of one type
  Precision(ComputeType compute, ComputeType transport)
      : common{.main = MainType(compute), .compute = compute, .transport = transport} {}

  ComputeType hidden() const { return common.compute; }
  const UnitTypes& Of(const std::string& unit) const;

  UnitTypes common;
  std::map<std::string, UnitTypes> units;  // those that differ, by name
  bool repeats = true;                     // kernels that give other bits each time are not used
};

// What a node's tensors are of.
struct NodeTypes {
  NodeTypes(const Precision& precision, const std::string& unit)
      : hidden(precision.hidden()), unit(precision.Of(unit)), repeats(precision.repeats) {}

  ComputeType hidden;  // of values between nodes
  UnitTypes unit;      // of the node
  bool repeats;        // Precision::repeats
};

}  // namespace tandem::model
