#include "model/precision.h"

#include <stdexcept>

namespace tandem::model {

int ElementBytes(ComputeType type) {
  switch (type) {
    case ComputeType::kFp32:
      return 4;
    case ComputeType::kFp64:
      return 8;
    case ComputeType::kBf16:
      return 2;
  }
  throw std::logic_error("no such type of elements");
}

const char* ToText(ComputeType type) {
  switch (type) {
    case ComputeType::kFp32:
      return "fp32";
    case ComputeType::kFp64:
      return "fp64";
    case ComputeType::kBf16:
      return "bf16";
  }
  throw std::logic_error("no such type of elements");
}

ComputeType MainType(ComputeType compute) {
  return compute == ComputeType::kFp64 ? ComputeType::kFp64 : ComputeType::kFp32;
}

const UnitTypes& Precision::Of(const std::string& unit) const {
  const auto found = units.find(unit);
  return found == units.end() ? common : found->second;
}

}  // namespace tandem::model
