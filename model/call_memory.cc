#include "model/call_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

namespace tandem::model {
namespace {

at::Tensor At(void* memory, at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::for_blob(memory, shape).options(options).target_device(options.device()).make_tensor();
}

}  // namespace

at::ScalarType ScalarTypeOf(ComputeType type) {
  return type == ComputeType::kFp64 ? at::kDouble : at::kFloat;
}

void PrepareGradient(NodeCall& call, int index, const std::vector<int64_t>& shape, at::ScalarType dtype,
                     device::Arena& arena) {
  if (!call.gradient_writes[index].defined()) {
    call.gradient_writes[index] = arena.Allocate(shape, dtype);
  }
}

void PrepareScratch(NodeCall& call, const ScratchLayout& layout, device::Arena& arena) {
  *call.scratch = arena.Allocate({layout.bytes}, at::kByte);
}

at::Tensor Piece(const NodeCall& call, const ScratchLayout& layout, int piece,
                 std::initializer_list<int64_t> shape, at::ScalarType dtype) {
  char* memory = static_cast<char*>(call.scratch->mutable_data_ptr()) + layout.offsets[piece];
  return At(memory, at::IntArrayRef(shape), call.scratch->options().dtype(dtype));
}

at::Tensor Block(const at::Tensor* items, int count) {
  const int64_t columns = items[0].size(1);
  int64_t rows = 0;
  for (int i = 0; i < count; ++i) {
    const char* expected =
        static_cast<const char*>(items[0].const_data_ptr()) + rows * columns * items[0].element_size();
    TORCH_CHECK(
        items[i].is_contiguous() && items[i].size(1) == columns && items[i].const_data_ptr() == expected,
        "item ", i, " of a block does not follow the one before it without a gap");
    rows += items[i].size(0);
  }
  return At(items[0].mutable_data_ptr(), {rows, columns}, items[0].options());
}

void RefusePass(const char* node, Pass pass) {
  TORCH_CHECK(false, node, " nodes run forward and whole backward, not pass ", static_cast<int>(pass));
}

}  // namespace tandem::model
