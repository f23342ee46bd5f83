// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tandem::device {

// N adjacent elements, which one thread reads or writes at once.
template <typename E, int N>
struct alignas(N * sizeof(E)) Pack {
  E e[N];
};

// The number of elements in a pack of 16 bytes, the most that one instruction can move.
template <typename E>
constexpr int kPackSize = 16 / sizeof(E);

}  // namespace tandem::device
