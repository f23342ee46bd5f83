// SPDX-License-Identifier: Apache-2.0
#include "plan/sent_bytes.h"

#include <gtest/gtest.h>

#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

// Of the units of the train program's instructions of that opcode, all weights with their padding, in fp32.
double UnitBytes(const JobPlan& plan, schedules::Opcode opcode) {
  double bytes = 0;
  for (const schedules::Instruction& instruction : plan.stage.train.instructions) {
    if (instruction.opcode == opcode) {
      bytes += 4 * static_cast<double>(
                       fsdp::GatheredElements(plan.layouts[instruction.target][0], plan.topology.world));
    }
  }
  return bytes;
}

TEST(SentBytesTest, ReplicasSendGradientsAndThenTheirSum) {
  const JobPlan plan = MakeJobPlan(TestJob("{ranks: 2, fsdp: {strategy: replicate}}"));
  const double gradients = UnitBytes(plan, schedules::Opcode::kReduceGradients);
  EXPECT_GT(gradients, 0);
  EXPECT_EQ(SentBytes(plan), (std::map<std::string, double>{{"reduce", gradients / 2 + gradients / 2}}));
}

TEST(SentBytesTest, ShardedRanksSendAShareOfEachCollective) {
  for (const int ranks : {2, 4}) {
    v1::JobSpec job = TestJob("{ranks: 2, fsdp: {strategy: zero3}}");
    job.mutable_parallelism()->set_ranks(ranks);
    job.mutable_training()->set_global_batch_size(6 * ranks);
    const JobPlan plan = MakeJobPlan(job);
    const double others = (ranks - 1) / static_cast<double>(ranks);
    const double gathered = UnitBytes(plan, schedules::Opcode::kUnshard);
    const double reduced = UnitBytes(plan, schedules::Opcode::kReduceGradients);
    EXPECT_GT(gathered, reduced) << "before forward and before backward";
    EXPECT_EQ(SentBytes(plan),
              (std::map<std::string, double>{{"gather", gathered * others}, {"reduce", reduced * others}}));
  }
}

TEST(SentBytesTest, OneRankSendsNothing) {
  v1::JobSpec job = TestJob("{ranks: 1}");
  EXPECT_TRUE(SentBytes(MakeJobPlan(job)).empty());
}

}  // namespace
}  // namespace tandem::plan
