#pragma once

#include <string>

#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {

// The first difference in losses, gradient norms, parameters' norms, weights or optimizer state, bit for bit;
// in validation losses where both runs have them. Empty: there is none. What depends on time is left out.
std::string FirstDifference(const JobRun& a, const JobRun& b);

void ExpectSameBits(const JobRun& a, const JobRun& b);

// The job with 12 microbatches a step, shared among so many ranks.
JobRun RunOn(int ranks, JobOptions options);

// The steps of `whole` from `first` on.
JobRun Tail(JobRun whole, size_t first);

}  // namespace tandem::parity
