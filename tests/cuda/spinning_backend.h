// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tests/parity/run.h"

namespace tandem::cuda {

// A rank a GPU.
parity::RunOptions OnGpus();

// The same with a kernel of random length (up to 300 µs, by seed and rank) in front of every piece of work on
// every stream: what is not ordered by events runs in another order. fill_with_nan: what is not written yet.
parity::RunOptions OnSpinningGpus(uint64_t seed, bool fill_with_nan = true);

}  // namespace tandem::cuda
