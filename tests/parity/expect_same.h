#pragma once

#include "tests/parity/run.h"

namespace tandem::parity {

// Losses, gradient norms, per-item norms, weights and optimizer state, bit for bit. What depends on time is
// left out.
void ExpectSameBits(const JobRun& a, const JobRun& b);

}  // namespace tandem::parity
