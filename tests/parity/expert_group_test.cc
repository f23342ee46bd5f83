// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Units in the expert group, in running jobs: the ranks of an EP group have different parameters, and those
// of an expert data-parallel group share them. autograd_test.cc has their numbers; here they are those of the
// twin that has one rank for each expert, whatever the placement.

constexpr int kExperts = 2;
constexpr int kGlobalMicrobatches = 8;

JobOptions Job(const std::string& strategy, int ranks, bool fp64) {
  return {.strategy = strategy,
          .ranks = ranks,
          .replicas = ReplicasOf(strategy),
          .experts = kExperts,
          .microbatches_per_rank = kGlobalMicrobatches / ranks,
          .hidden = 16,
          .inner = 24,
          .heads = 2,
          .kv_heads = 1,
          .sequence_length = 8,
          .fp64 = fp64,
          .validate_every_steps = 2};
}

class ExpertGroupTest : public testing::TestWithParam<std::string> {};

TEST_P(ExpertGroupTest, HasTheNumbersOfOneRankForEachExpert) {
  const std::string& strategy = GetParam();
  for (const bool fp64 : {true, false}) {
    const JobRun twin = RunJob(MakeJob(Job("zero3", kExperts, fp64)));
    EXPECT_NE(twin.arrays.at("layers.1/expert 0/weights"), twin.arrays.at("layers.1/expert 1/weights"))
        << "the experts see different tokens";
    for (const int ranks : {2, 4, 8}) {
      if (strategy[0] == 'h' && ranks == 2) {
        continue;  // a rank of each expert has no replica
      }
      SCOPED_TRACE(testing::Message() << ranks << " ranks, fp64 " << fp64);
      const plan::JobPlan plan = MakeJob(Job(strategy, ranks, fp64));
      const JobRun run = RunJob(plan, {.fill_with_nan = true});
      if (strategy == "zero2" || strategy == "zero3" ||
          (strategy[0] != 'h' && ranks == kGlobalMicrobatches)) {
        ExpectSameBits(twin, run);
      } else {
        ExpectClose(plan, twin, run, fp64 ? kFp64 : kFp32);
      }
    }
  }
}

// On communicators of their own: nothing of an expert goes over a dense group, and nothing else over theirs.
TEST_P(ExpertGroupTest, GathersAndReducesOnItsOwnGroups) {
  JobOptions options = Job(GetParam(), 8, true);
  options.validate_every_steps = 0;
  const plan::JobPlan plan = MakeJob(options);
  const JobRun run = RunJob(plan);
  const schedules::MeshAxes& expert = plan.options.expert;
  const schedules::MeshAxes& dense = plan.options.dense;
  EXPECT_EQ(expert.inner * expert.outer * kExperts, dense.inner * dense.outer);
  EXPECT_EQ(expert.gather_group, "expt_dp_ag");
  const auto of = [&](const std::string& group, bool all_gather) {
    const auto found = run.collectives.find(group);
    return found == run.collectives.end()
               ? 0
               : std::count_if(found->second.begin(), found->second.end(), [&](const Collective& collective) {
                   return (collective.operation == "AllGather") == all_gather;
                 });
  };
  // The dense groups serve embedding, layer 0 and head; layer 1 is gathered and reduced as often as layer 0.
  constexpr int kDenseUnits = 3;
  EXPECT_EQ(of(dense.inner_group, false), kDenseUnits * of(expert.inner_group, false));
  EXPECT_GT(of(expert.inner_group, false), 0);
  EXPECT_EQ(of(dense.outer_group, false), kDenseUnits * of(expert.outer_group, false));
  EXPECT_EQ(of(expert.outer_group, false) > 0, GetParam()[0] == 'h');
  const bool gathers_per_use = plan.options.strategy.inner.parameters == schedules::Placement::kShard;
  // Embedding and head are used once a microbatch, layers twice.
  EXPECT_EQ(of(dense.gather_group, true), (gathers_per_use ? 2 : 3) * of(expert.gather_group, true));
  EXPECT_EQ(of(expert.gather_group, true) > 0, GetParam() != "replicate");
  EXPECT_EQ(of(expert.gather_group, false), 0);
}

INSTANTIATE_TEST_SUITE_P(All, ExpertGroupTest,
                         testing::Values("replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::parity
