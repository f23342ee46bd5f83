// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Over what a router's load is to be even. Where that is the global batch, ranks exchange the
// tokens of every microbatch, and a sum of them goes from microbatch to microbatch.

JobOptions Scoped(const std::string& scope) {
  JobOptions options = SparseJob();
  options.balance_scope = scope;
  options.router_aux_loss = 0.5;  // so large that it is seen in every number
  options.steps = 3;
  return options;
}

// overlap_matrix_test.cc has every schedule.
TEST(GlobalBalanceTest, AllowedOrdersGiveTheSameBits) {
  for (const auto& [ranks, expert_parallel, chunks] :
       {std::tuple(1, 1, ""), std::tuple(2, 2, "exact"), std::tuple(4, 2, "fixed")}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, " << expert_parallel << " share experts");
    JobOptions options = Scoped("global");
    options.strategy = ranks == 4 ? "zero1" : "zero3";
    options.ranks = ranks;
    options.expert_parallel = expert_parallel;
    options.chunks = chunks;
    options.microbatches_per_rank = 3;
    options.validate_every_steps = 2;
    ExpectSameBitsInOrdersOfTheOverlap(options);
  }
}

// The numbers of 1, 2 and 4 ranks that share the sequences of every round, as nearly as fp64 computes them.
JobRun RunOfRound(JobOptions options, int ranks, int expert_parallel) {
  options.fp64 = true;
  options.ranks = ranks;
  options.expert_parallel = expert_parallel;
  options.micro_batch_size = 4 / ranks;
  options.microbatches_per_rank = 3;
  options.overlap = expert_parallel > 1;
  return RunJob(MakeJob(options), {.fill_with_nan = true});
}

plan::JobPlan PlanOfRound(JobOptions options) {
  options.fp64 = true;
  options.micro_batch_size = 4;
  options.microbatches_per_rank = 3;
  return MakeJob(options);
}

TEST(GlobalBalanceTest, IsTheSameHoweverRanksShareARound) {
  const JobOptions options = Scoped("global");
  const JobRun one = RunOfRound(options, 1, 1);
  for (const auto& [ranks, expert_parallel] :
       std::vector<std::pair<int, int>>{{2, 1}, {4, 1}, {2, 2}, {4, 2}}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, " << expert_parallel << " share experts");
    const JobRun shared = RunOfRound(options, ranks, expert_parallel);
    ExpectClose(PlanOfRound(options), one, shared, kFp64);
    for (size_t step = 0; step < one.steps.size(); ++step) {
      const v1::Norms& expected = one.steps[step].norms();
      const v1::Norms& actual = shared.steps[step].norms();
      ASSERT_EQ(actual.experts_size(), expected.experts_size());
      for (int layer = 0; layer < expected.experts_size(); ++layer) {
        const double balance = expected.experts(layer).balance_loss();
        EXPECT_NEAR(actual.experts(layer).balance_loss(), balance, 1e-12 * balance);
        const double z = expected.experts(layer).z_loss();
        EXPECT_NEAR(actual.experts(layer).z_loss(), z, 1e-12 * z);
      }
    }
  }
}

// What the other scopes cannot promise; or the test above would show nothing.
TEST(GlobalBalanceTest, BalanceDependsOnHowRanksShareARound) {
  const JobOptions options = Scoped("microbatch");
  const Tolerance distance =
      DistanceBetween(PlanOfRound(options), RunOfRound(options, 1, 1), RunOfRound(options, 2, 1));
  EXPECT_GT(distance.state, 1e-6);
}

// With one round on one rank the global batch is the microbatch.
TEST(GlobalBalanceTest, OfOneMicrobatchIsItsBalance) {
  JobOptions options = Scoped("global");
  JobRun global = RunJob(MakeJob(options));
  global.node_states.clear();  // what microbatches carry on; the other job has none
  options.balance_scope = "microbatch";
  EXPECT_EQ(FirstDifference(RunJob(MakeJob(options)), global), "");
}

// Each step starts over, whatever the former one and a validation between them have left.
TEST(GlobalBalanceTest, AResumedJobHasTheSameBits) {
  JobOptions options = Scoped("global");
  options.ranks = 2;
  options.microbatches_per_rank = 2;
  options.steps = 4;
  options.validate_every_steps = 3;
  ExpectSameBitsAfter(2, options, {options});
}

}  // namespace
}  // namespace tandem::parity
