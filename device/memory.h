// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace at {
class Tensor;
}
namespace c10 {
enum class ScalarType : int8_t;
}

namespace tandem::device {

class Device;

// Bytes of this value are a NaN of every floating-point type.
inline constexpr uint8_t kNanByte = 0xFF;

// Bytes of a device's memory, or of the host's: [begin, begin + bytes). Owns nothing; valid as long as the
// region that it lies in.
struct Memory {
  char* begin = nullptr;
  int64_t bytes = 0;

  template <typename Element>
  Element* as() const {
    return reinterpret_cast<Element*>(begin);
  }
};

// A contiguous tensor at the beginning of `memory`, which is of `device`. Throws std::invalid_argument where
// the tensor does not fit, or does not begin at a multiple of its element's size.
at::Tensor TensorIn(const Device& device, Memory memory, const std::vector<int64_t>& shape,
                    c10::ScalarType dtype);

// The same of as many elements as fit exactly: 1-D. Throws where a part of an element is left over.
at::Tensor FlatTensorIn(const Device& device, Memory memory, c10::ScalarType dtype);

}  // namespace tandem::device
