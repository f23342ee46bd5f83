// SPDX-License-Identifier: Apache-2.0
#include "device/memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <stdexcept>
#include <string>

#include "device/device.h"

namespace tandem::device {

at::Tensor TensorIn(const Device& device, Memory memory, const std::vector<int64_t>& shape,
                    c10::ScalarType dtype) {
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  std::string text = c10::toString(dtype);
  int64_t bytes = element_bytes;
  bool fits = true;
  for (const int64_t dim : shape) {
    text += " " + std::to_string(dim);
    fits = fits && dim >= 0 && !__builtin_mul_overflow(bytes, dim, &bytes);
  }
  if (!fits || bytes > memory.bytes) {
    throw std::invalid_argument("a tensor of shape and type" + (" " + text) + " does not fit into " +
                                std::to_string(memory.bytes) + " bytes");
  }
  if (reinterpret_cast<uintptr_t>(memory.begin) % static_cast<uintptr_t>(element_bytes) != 0) {
    throw std::invalid_argument("a tensor of " + text +
                                " does not begin at a multiple of its element's size");
  }
  const c10::Device where = device.torch_device();
  return at::for_blob(memory.begin, shape)
      .options(at::TensorOptions().dtype(dtype).device(where))
      .target_device(where)
      .make_tensor();
}

at::Tensor FlatTensorIn(const Device& device, Memory memory, c10::ScalarType dtype) {
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  if (memory.bytes % element_bytes != 0) {
    throw std::invalid_argument(std::to_string(memory.bytes) + " bytes are not a number of elements of " +
                                c10::toString(dtype));
  }
  return TensorIn(device, memory, {memory.bytes / element_bytes}, dtype);
}

}  // namespace tandem::device
