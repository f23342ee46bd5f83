// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// What has gone wrong in systems like this one, as regression tests of whole jobs; docs/regressions.md lists
// all of them. What a program may not do (a gather before the optimizer has written, a reduction twice or too
// early, memory given to two) its check refuses: tests/schedules/check; every strategy in every combination:
// matrix_test.cc.

constexpr const char* kStrategies[] = {"replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"};

JobOptions Tiny(const std::string& strategy, int ranks, int rounds) {
  return {.strategy = strategy,
          .ranks = ranks,
          .replicas = ReplicasOf(strategy),
          .microbatches_per_rank = rounds,
          .layers = 1,
          .hidden = 16,
          .inner = 16,
          .heads = 2,
          .kv_heads = 1,
          .sequence_length = 8,
          .fp64 = true};
}

// The head is one row: one granule, which one of eight ranks owns.
TEST(MustNotHappenTest, EmptyShardsDisturbTheirNeighbours) {
  for (const char* strategy : kStrategies) {
    SCOPED_TRACE(strategy);
    JobOptions options = Tiny(strategy, 8, 1);
    options.tied = true;
    const plan::JobPlan plan = MakeJob(options);
    options.strategy = "zero3";
    options.ranks = options.replicas = 1;
    options.microbatches_per_rank = 8;
    ExpectClose(plan, RunJob(MakeJob(options)), RunJob(plan, {.fill_with_nan = true}), kFp64);
  }
}

// Averages and scalings by collectives are unreliable in groups of one rank.
TEST(MustNotHappenTest, AGroupOfOneRankScalesItsGradientsOtherwise) {
  const JobRun one = RunJob(MakeJob(Tiny("zero3", 1, 3)));
  for (const char* strategy : {"replicate", "zero1", "zero2"}) {
    SCOPED_TRACE(strategy);
    ExpectSameBits(one, RunJob(MakeJob(Tiny(strategy, 1, 3))));
  }
}

// The mean over microbatches is the mean over tokens, however a batch is cut: all microbatches have as many.
TEST(MustNotHappenTest, ATokenCountsMoreInASmallerMicrobatch) {
  constexpr int64_t kSequences = 12;  // of a step
  const auto job = [](const char* strategy, int ranks, int64_t micro_batch_size) {
    JobOptions options = Tiny(strategy, ranks, static_cast<int>(kSequences / micro_batch_size) / ranks);
    options.micro_batch_size = micro_batch_size;
    return MakeJob(options);
  };
  const JobRun whole = RunJob(job("zero3", 1, kSequences));
  for (const char* strategy : {"zero3", "zero1"}) {
    for (const int64_t micro_batch_size : {1, 2, 3, 6}) {
      SCOPED_TRACE(testing::Message() << strategy << ", microbatches of " << micro_batch_size);
      const plan::JobPlan plan = job(strategy, 2, micro_batch_size);
      ExpectClose(plan, whole, RunJob(plan), kFp64);
    }
  }
}

TEST(MustNotHappenTest, AReplicatedGradientIsOverwrittenOrReducedByEveryMicrobatch) {
  const JobRun one = RunJob(MakeJob(Tiny("zero3", 1, 6)));
  for (const char* strategy : {"replicate", "zero1"}) {
    SCOPED_TRACE(strategy);
    const plan::JobPlan plan = MakeJob(Tiny(strategy, 2, 3));
    const JobRun run = RunJob(plan, {.fill_with_nan = true});
    ExpectClose(plan, one, run, kFp64);
    const std::vector<Collective>& made = run.collectives.at("dp_cp");
    const auto exchanges = std::count_if(made.begin(), made.end(), [](const Collective& collective) {
      return collective.operation != "AllGather";
    });
    EXPECT_EQ(exchanges, static_cast<int64_t>(plan.train.steps * plan.units.size()));
  }
}

TEST(MustNotHappenTest, ReplicasDriftApart) {
  for (const char* strategy : {"replicate", "hsdp", "hfsdp"}) {
    for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
      SCOPED_TRACE(testing::Message() << strategy << " " << precision);
      JobOptions options = Tiny(strategy, 4, 2);
      options.steps = 20;
      options.fp64 = false;
      options.precision = precision;
      const JobRun run = RunJob(MakeJob(options));
      EXPECT_EQ(run.arrays.contains("head/published"), options.precision != "");
      EXPECT_EQ(run.unequal_replicas, std::set<std::string>());
      EXPECT_LT(run.steps.back().loss(), run.steps.front().loss());
    }
  }
}

TEST(MustNotHappenTest, AParameterBelongsToTwoUnitsOrToNone) {
  for (const bool tied : {false, true}) {
    JobOptions options = Tiny("zero3", 1, 1);
    options.tied = tied;
    const plan::JobPlan plan = MakeJob(options);
    std::set<std::string> names;
    int64_t elements = 0;
    for (const fsdp::ClassLayouts& layouts : plan.layouts) {
      for (const fsdp::Parameter& parameter : layouts[0].parameters) {
        EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
        elements += parameter.range.size();
      }
    }
    EXPECT_EQ(elements, model::NumParameters(plan.model));
    EXPECT_EQ(names.contains("lm_head.weight"), !tied);
  }
}

// Against the squares of the gathered tensors.
TEST(MustNotHappenTest, NormsCountWhatSeveralRanksHoldMoreThanOnce) {
  for (const char* strategy : kStrategies) {
    SCOPED_TRACE(strategy);
    const plan::JobPlan plan = MakeJob(Tiny(strategy, 4, 1));
    const JobRun run = RunJob(plan);
    size_t item = 0;
    for (size_t unit = 0; unit < plan.units.size(); ++unit) {
      const std::string& weights = run.arrays.at(plan.units[unit].name + "/weights");
      for (const fsdp::Parameter& parameter : plan.layouts[unit][0].parameters) {
        double squares = 0;
        for (int64_t i = parameter.range.begin; i < parameter.range.end; ++i) {
          double value = 0;
          std::memcpy(&value, weights.data() + i * sizeof(double), sizeof(double));
          squares += value * value;
        }
        const double norm = run.steps.back().norms().weight(item++);
        EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * norm) << parameter.name;
      }
    }
  }
}

// Loaded weights must reach what is gathered, published and read, under every strategy.
TEST(MustNotHappenTest, ALoadedCheckpointLeavesGatheredWeightsStale) {
  for (const char* strategy : kStrategies) {
    for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
      SCOPED_TRACE(testing::Message() << strategy << " " << precision);
      const TemporaryFolder folder;
      JobOptions options = Tiny(strategy, 4, 1);
      options.fp64 = false;
      options.precision = precision;
      options.steps = 4;
      options.validate_every_steps = 2;
      options.checkpoint_directory = folder.path();
      options.checkpoint_every_steps = 2;
      const JobRun whole = RunJob(MakeJob(options));
      options.resume = folder.path() + "/step-2";
      const JobRun again = RunJob(MakeJob(options));
      ASSERT_EQ(again.steps.size(), 2u);
      EXPECT_EQ(again.steps[0].loss(), whole.steps[2].loss());
      EXPECT_EQ(again.steps[1].loss(), whole.steps[3].loss());
    }
  }
}

}  // namespace
}  // namespace tandem::parity
