// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "trainer/backend.h"

namespace tandem::cuda {

// GPU `index`, with a kernel of random length (up to 300 µs, by seed) in front of every piece of work on
// every stream: what is not ordered by events runs in another order.
std::unique_ptr<trainer::Backend> MakeSpinningBackend(int index, uint64_t seed);

}  // namespace tandem::cuda
