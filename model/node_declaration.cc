#include "model/node_declaration.h"

#include <algorithm>

namespace tandem::model {
namespace {

constexpr int64_t kPieceAlignment =
    256;  // bytes: of a buffer, and what copy engines and matrix products like best

}  // namespace

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    elements *= dim;
  }
  return elements;
}

int64_t BytesOf(const TensorSpec& spec, ComputeType type) {
  const int64_t elements = NumElements(spec.shape);
  switch (spec.type) {
    case ElementType::kCompute:
      return elements * ElementBytes(type);
    case ElementType::kFloat64:
    case ElementType::kInt64:
      return elements * 8;
    case ElementType::kByte:
      return elements;
  }
  return 0;
}

ScratchLayout LayOutScratch(const PassSpec& pass, ComputeType type) {
  ScratchLayout layout;
  for (const TensorSpec& piece : pass.scratch) {
    layout.offsets.push_back(layout.bytes);
    const int64_t pieces = (BytesOf(piece, type) + kPieceAlignment - 1) / kPieceAlignment;
    layout.bytes += pieces * kPieceAlignment;
  }
  return layout;
}

std::string FrozenGradientScratch(const std::string& parameter) { return "gradient of frozen " + parameter; }

void FreezeParts(const DecoderConfig& config, const std::string& unit, int64_t tokens,
                 NodeDeclaration& declaration) {
  for (PartSpec& part : declaration.parts) {
    part.frozen = IsFrozen(config, part.unit.empty() ? unit : part.unit);
    if (!part.frozen || !declaration.backward.parameter_gradients) {
      continue;
    }
    PassSpec& backward = declaration.backward;
    for (const ParameterSpec& parameter : part.parameters) {
      if (parameter.shape.size() == 1) {
        backward.scratch.push_back({FrozenGradientScratch(parameter.name), parameter.shape});
      } else {
        const double product =
            2.0 * static_cast<double>(tokens) * static_cast<double>(NumElements(parameter.shape));
        backward.flops = std::max(0.0, backward.flops - product);
      }
    }
  }
}

}  // namespace tandem::model
