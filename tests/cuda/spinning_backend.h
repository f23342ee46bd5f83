// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tests/parity/run.h"

namespace tandem::cuda {

// Runs each rank on a GPU of its own.
parity::RunOptions OnGpus();

// The same with a kernel of random length (up to 300 µs, by seed and rank) before every piece of work on
// every stream, so that work that is not ordered by events runs in another order. fill_with_nan: memory that
// is not written yet has NaN.
parity::RunOptions OnSpinningGpus(uint64_t seed, bool fill_with_nan = true);

}  // namespace tandem::cuda
