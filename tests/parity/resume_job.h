// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "plan/job_plan.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {

inline constexpr int kMicrobatches = 4;  // of a step of OnRanks, over all ranks

// A job of eight steps, whose numbers do not depend on the ranks, with checkpoints in the folder.
JobOptions OnRanks(int ranks, const std::string& folder);

// A job on two ranks and the folder of its checkpoints.
class SavedJobTest : public testing::Test {
 protected:
  const TemporaryFolder folder_;
  JobOptions options_ = OnRanks(2, folder_.path());
};

// Asks one rank before the first step: all agree with its norm, and act after the run behind it, which is
// step 2's.
RunOptions Ask(int rank, uint32_t bits, uint64_t id);

// Another text than that of all other jobs: its path.
std::string WriteOtherText(const std::string& folder);

// Makes the checkpoint one that does not verify.
void Damage(const std::string& checkpoint);

std::string Content(const std::string& path);
int64_t NumLines(const std::string& path);

// What the user of the job is told.
struct Refusal {
  std::string reason;
  std::string message;
};

// Expects a job that ends with a trainer::UserError.
Refusal RefusalOf(const plan::JobPlan& plan, const RunOptions& run = {});

}  // namespace tandem::parity
