// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>

#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Experts that compute as many rows as they have room for, whatever they are sent. Memory is filled with NaN
// at first, so that an empty row that were read before it was cleared would show. overlap_matrix_test.cc has
// every schedule.

struct CapacityCase {
  std::string strategy;
  int ranks;
  int expert_parallel;
  std::string chunks;
  double factor;  // 4 and more: room for all of eight experts' tokens, of which each uses two
  bool by_position;
};

std::ostream& operator<<(std::ostream& out, const CapacityCase& c) {
  return out << c.strategy << ", " << c.ranks << " ranks, " << c.expert_parallel << " share experts, "
             << c.chunks << " chunks, room for " << c.factor << " times the even share"
             << (c.by_position ? ", the first" : ", the most probable");
}

class PaddedCapacityTest : public testing::TestWithParam<CapacityCase> {
 protected:
  static JobOptions Options() {
    const CapacityCase& c = GetParam();
    JobOptions options = SparseJob();
    options.strategy = c.strategy;
    options.ranks = c.ranks;
    options.replicas = ReplicasOf(c.strategy);
    options.expert_parallel = c.expert_parallel;
    options.chunks = c.chunks;
    options.microbatches_per_rank = 3;
    options.steps = 4;
    options.capacity_factor = c.factor;
    options.drop_by_position = c.by_position;
    options.pad_to_capacity = true;
    options.validate_every_steps = 2;
    return options;
  }

  static int64_t Dropped(const JobRun& run) {
    int64_t dropped = 0;
    for (const v1::StepReport& step : run.steps) {
      for (const v1::ExpertLoad& load : step.norms().experts()) {
        dropped += load.dropped();
      }
    }
    return dropped;
  }
};

TEST_P(PaddedCapacityTest, HasTheNumbersOfAnUnpaddedJob) {
  JobOptions options = Options();
  options.fp64 = true;
  const JobRun padded = RunJob(MakeJob(options), {.fill_with_nan = true});
  options.pad_to_capacity = false;
  EXPECT_EQ(Dropped(padded) > 0, GetParam().factor < 4);
  const plan::JobPlan plan = MakeJob(options);
  ExpectClose(plan, RunJob(plan), padded, kFp64);
  if (GetParam().factor >= 4) {
    options.capacity_factor = 0;
    options.drop_by_position = false;
    const plan::JobPlan all = MakeJob(options);
    ExpectClose(all, RunJob(all), padded, kFp64);
  }
}

TEST_P(PaddedCapacityTest, AllowedOrdersGiveTheSameBits) { ExpectSameBitsInOrdersOfTheOverlap(Options()); }

INSTANTIATE_TEST_SUITE_P(Cases, PaddedCapacityTest,
                         testing::Values(CapacityCase{"zero3", 2, 2, "fixed", 1.25, false},
                                         CapacityCase{"zero1", 2, 2, "exact", 0.75, true},
                                         CapacityCase{"zero2", 4, 4, "fixed", 0.75, true},
                                         CapacityCase{"hsdp", 4, 2, "exact", 1, true},
                                         CapacityCase{"zero3", 4, 2, "exact", 4, false},
                                         CapacityCase{"zero3", 2, 1, "", 1.25, true}));

}  // namespace
}  // namespace tandem::parity
