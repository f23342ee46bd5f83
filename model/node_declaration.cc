#include "model/node_declaration.h"

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

}  // namespace tandem::model
