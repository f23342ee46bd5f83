// SPDX-License-Identifier: Apache-2.0
#include "model/precision.h"

namespace tandem::model {
namespace {

struct TypeInfo {
  const char* name;
  int bytes;
};

constexpr TypeInfo kTypes[] = {{"fp32", 4}, {"fp64", 8}, {"bf16", 2}};  // by ComputeType

}  // namespace

int ElementBytes(ComputeType type) { return kTypes[static_cast<int>(type)].bytes; }

const char* ToText(ComputeType type) { return kTypes[static_cast<int>(type)].name; }

ComputeType MainType(ComputeType compute) {
  return compute == ComputeType::kFp64 ? ComputeType::kFp64 : ComputeType::kFp32;
}

const UnitTypes& Precision::Of(const std::string& unit) const {
  const auto found = units.find(unit);
  return found == units.end() ? common : found->second;
}

}  // namespace tandem::model
