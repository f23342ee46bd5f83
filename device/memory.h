// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ranges>

namespace tandem::device {

// A floating-point number of any type is a NaN if all its bytes have this value.
inline constexpr uint8_t kNanByte = 0xFF;

// A range [begin, begin + bytes) of a device's or the host's memory. It owns nothing and is valid as long as
// the region that contains it.
struct Memory {
  char* begin = nullptr;
  int64_t bytes = 0;

  template <typename Element>
  Element* as() const {
    return reinterpret_cast<Element*>(begin);
  }
};

// The elements of a vector, a string or an array. Valid until the container moves them.
template <std::ranges::contiguous_range Elements>
Memory MemoryOf(Elements& elements) {
  return {.begin = reinterpret_cast<char*>(std::ranges::data(elements)),
          .bytes = static_cast<int64_t>(std::ranges::size(elements) * sizeof(*std::ranges::data(elements)))};
}

}  // namespace tandem::device
