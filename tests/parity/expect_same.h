#pragma once

#include <string>

#include "tests/parity/run.h"

namespace tandem::parity {

// The first difference in losses, gradient norms, parameters' norms, weights or optimizer state, bit for bit;
// in validation losses where both runs have them. Empty: there is none. What depends on time is left out.
std::string FirstDifference(const JobRun& a, const JobRun& b);

void ExpectSameBits(const JobRun& a, const JobRun& b);

}  // namespace tandem::parity
