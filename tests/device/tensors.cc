// SPDX-License-Identifier: Apache-2.0
#include "tests/device/tensors.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <stdexcept>

namespace tandem::device {

at::ScalarType ScalarTypeOf(ElementKind kind) {
  static constexpr at::ScalarType kTypes[] = {at::kByte,     at::kFloat, at::kDouble,
                                              at::kBFloat16, at::kLong,  at::kByte};
  return kTypes[static_cast<int>(kind)];
}

ElementKind KindOf(const at::Tensor& tensor) {
  for (const ElementKind kind : {ElementKind::kFloat, ElementKind::kDouble, ElementKind::kBf16,
                                 ElementKind::kInt64, ElementKind::kByte}) {
    if (ScalarTypeOf(kind) == tensor.scalar_type()) {
      return kind;
    }
  }
  throw std::invalid_argument(std::string("no elements are ") + c10::toString(tensor.scalar_type()));
}

Memory MemoryOf(const at::Tensor& tensor) {
  if (!tensor.is_contiguous()) {
    throw std::invalid_argument("a tensor that is not contiguous is not one piece of memory");
  }
  return {.begin = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())),
          .bytes = static_cast<int64_t>(tensor.nbytes())};
}

int64_t RowBytesOf(const at::Tensor& matrix) {
  return matrix.size(1) * static_cast<int64_t>(matrix.itemsize());
}

at::Tensor TensorIn(const Device& device, Memory memory, const std::vector<int64_t>& shape,
                    at::ScalarType type) {
  auto bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t dim : shape) {
    bytes *= dim;
  }
  if (bytes > memory.bytes) {
    throw std::invalid_argument("a tensor of " + std::to_string(bytes) + " bytes does not fit into " +
                                std::to_string(memory.bytes));
  }
  const c10::Device where = device.finishes_in_calls() ? c10::Device(c10::kCPU)
                                                       : c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();
  return at::for_blob(memory.begin, shape)
      .options(at::TensorOptions().dtype(type).device(where))
      .target_device(where)
      .make_tensor();
}

at::Tensor TensorAt(const Device& device, const StaticArena& arena, int64_t offset,
                    const std::vector<int64_t>& shape, at::ScalarType type) {
  return TensorIn(device, arena.At(offset, arena.all().bytes - offset), shape, type);
}

at::Tensor FlatTensorIn(const Device& device, Memory memory, at::ScalarType type) {
  return TensorIn(device, memory, {memory.bytes / static_cast<int64_t>(c10::elementSize(type))}, type);
}

at::Tensor FlatTensorIn(const Device& device, Memory memory, ElementKind kind) {
  return FlatTensorIn(device, memory, ScalarTypeOf(kind));
}

}  // namespace tandem::device
