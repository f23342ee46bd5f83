// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {

// The first difference in losses, gradient norms, parameters' norms, validation losses (that before the first
// step too), numbers of tokens and of elements that are not finite, weights, optimizer state or node states,
// bit for bit. Empty: there is none. What depends on time is left out.
std::string FirstDifference(const JobRun& a, const JobRun& b);

void ExpectSameBits(const JobRun& a, const JobRun& b);

// Expects that the job has the bits of its sequential schedule in every other: overlapped, with and without
// delayed weight gradients and recomputation, and with experts' weight gradients on a stream of their own.
// Returns the sequential run.
JobRun ExpectSameBitsOfSchedules(JobOptions options);

// Runs the job in an order of each of the seeds 1 to `seeds` that its program allows, in memory filled with
// NaN at first: each gives the bits of `ordinary`.
void ExpectSameBitsInOrders(const JobRun& ordinary, const plan::JobPlan& plan, uint64_t seeds);

// The same of two steps of the job, overlapped with delayed weight gradients, in a few orders.
void ExpectSameBitsInOrdersOfTheOverlap(JobOptions options);

inline constexpr int kMicrobatchesOfAllRanks = 12;

// Runs the job with so many microbatches a step, shared among so many ranks.
JobRun RunOn(int ranks, JobOptions options, int microbatches = kMicrobatchesOfAllRanks);

// Expects that the job has the bits of one rank on each of these numbers of ranks, which share so many
// microbatches a step, in memory filled with NaN at first. Returns the run of one rank.
JobRun ExpectSameBitsOnRanks(const JobOptions& options, const std::vector<int>& ranks,
                             int microbatches = kMicrobatchesOfAllRanks);

// Runs the job, which saves every `step` steps, and then each of `resumed` from that step on, in a folder of
// its own: expects no warning, and the bits of the job that went on, which it returns.
JobRun ExpectSameBitsAfter(int64_t step, JobOptions options, const std::vector<JobOptions>& resumed);

// The job on so many ranks, with as many microbatches a step as before.
JobOptions SharedAmong(int ranks, JobOptions options);

// The steps of `whole` from `first` on, as a run has them that goes on from the one before.
JobRun Tail(JobRun whole, size_t first);

}  // namespace tandem::parity
