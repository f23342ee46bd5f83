// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
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

struct ScopeCase {
  std::string scope;
  std::string strategy;
  int ranks;
  int expert_parallel;
  std::string chunks;
  int microbatches;
};

std::ostream& operator<<(std::ostream& out, const ScopeCase& c) {
  return out << c.scope << ", " << c.strategy << ", " << c.ranks << " ranks, " << c.expert_parallel
             << " share experts, " << c.chunks << " chunks, " << c.microbatches << " microbatches";
}

class BalanceScopeTest : public testing::TestWithParam<ScopeCase> {
 protected:
  static JobOptions Options() {
    const ScopeCase& c = GetParam();
    JobOptions options = Scoped(c.scope);
    options.strategy = c.strategy;
    options.ranks = c.ranks;
    options.replicas = ReplicasOf(c.strategy);
    options.expert_parallel = c.expert_parallel;
    options.chunks = c.chunks;
    options.microbatches_per_rank = c.microbatches;
    options.validate_every_steps = 2;
    return options;
  }
};

TEST_P(BalanceScopeTest, SchedulesAndRecomputationGiveTheSameBits) {
  JobOptions options = Options();
  const JobRun sequential = RunJob(MakeJob(options), {.fill_with_nan = true});
  const auto expect_same = [&](const char* what) {
    EXPECT_EQ(FirstDifference(sequential, RunJob(MakeJob(options), {.fill_with_nan = true})), "") << what;
  };
  options.recompute = "layer";
  expect_same("sequential, recomputing");
  if (options.expert_parallel > 1) {
    options.separate_weight_gradients = true;
    expect_same("separate weight gradients, recomputing");
    options.separate_weight_gradients = false;
  }
  options.overlap = true;
  expect_same("overlap, recomputing");
  options.delay_weight_gradients = true;
  options.prefetch = 2;
  expect_same("overlap, delayed weight gradients, recomputing");
  options.recompute = "off";
  expect_same("overlap, delayed weight gradients");
}

TEST_P(BalanceScopeTest, EveryOrderThatTheProgramAllowsGivesTheSameBits) {
  ExpectSameBitsInOrdersOfTheOverlap(Options());
}

TEST_P(BalanceScopeTest, HasTheNumbersOfRanksWithEveryExpert) {
  if (GetParam().expert_parallel == 1) {
    GTEST_SKIP() << "its ranks have every expert";
  }
  JobOptions options = Options();
  options.fp64 = true;
  ExpectNumbersOfRanksWithEveryExpert(options);
}

INSTANTIATE_TEST_SUITE_P(Cases, BalanceScopeTest,
                         testing::Values(ScopeCase{"global", "zero3", 1, 1, "", 3},
                                         ScopeCase{"global", "zero3", 2, 2, "exact", 4},
                                         ScopeCase{"global", "zero1", 4, 2, "fixed", 2},
                                         ScopeCase{"global", "hsdp", 4, 2, "exact", 3},
                                         ScopeCase{"global", "zero2", 4, 4, "fixed", 1},
                                         ScopeCase{"sequence", "zero3", 2, 2, "exact", 3}));

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
TEST(GlobalBalanceTest, AMicrobatchesBalanceDependsOnHowRanksShareARound) {
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
TEST(GlobalBalanceTest, AResumedJobGoesOnWithTheSameBits) {
  const TemporaryFolder folder;
  JobOptions options = Scoped("global");
  options.ranks = 2;
  options.microbatches_per_rank = 2;
  options.steps = 4;
  options.validate_every_steps = 3;
  options.checkpoint_directory = folder.path();
  options.checkpoint_every_steps = 2;
  const JobRun whole = RunJob(MakeJob(options));
  const TemporaryFolder other;
  options.checkpoint_directory = other.path();
  options.resume = folder.path() + "/step-2";
  const JobRun resumed = RunJob(MakeJob(options));
  EXPECT_EQ(resumed.resumed_step, 2);
  ExpectSameBits(Tail(whole, 3), resumed);
}

}  // namespace
}  // namespace tandem::parity
