// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/job_plan.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {

// How far two runs of tier T2, which add in other orders, may be from each other, relative to the first
// one's.
struct Tolerance {
  double loss = 0;
  double state = 0;  // of each array: ‖Δ‖ / ‖w‖
  double first_norm = 0;
  double later_norm = 0;
};

inline constexpr Tolerance kFp64{.loss = 1e-12, .state = 1e-11, .first_norm = 1e-11, .later_norm = 1e-11};
inline constexpr Tolerance kFp32{.loss = 2e-6, .state = 1e-5, .first_norm = 1e-6, .later_norm = 1e-4};

// Losses, validation losses (that before the first step too), norms of the gradient and of every parameter
// (an update's beyond what rounding the weights leaves of it), weights and moments; that both count the same
// tokens, elements that are not finite, and in fp64 tokens of each expert; and that the ranks of one run hold
// the same where they hold the same elements. A number that is not finite is close to its like alone.
// plan: of `a`.
void ExpectClose(const plan::JobPlan& plan, const JobRun& a, const JobRun& b, const Tolerance& tolerance);

// The largest distance of each kind: the least tolerance that ExpectClose takes.
Tolerance DistanceBetween(const plan::JobPlan& plan, const JobRun& a, const JobRun& b);

// That ranks that share experts (JobOptions::expert_parallel) have the numbers of ranks that have them all.
// The memory of the former is filled with NaN at first.
void ExpectNumbersOfRanksWithEveryExpert(const JobOptions& options);

// Expects that over 40 steps the losses of a job in bfloat16, which has 8 digits, differ from fp32's, by
// little, and fall as fast.
void ExpectLossesNearFp32(JobOptions options);

}  // namespace tandem::parity
