// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "model/parameter_and_flop_counts.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// What has gone wrong in systems like this one, as regression tests of whole jobs; docs/regressions.md lists
// all of them. What a program may not do (a gather before the optimizer has written, a reduction twice or too
// early, memory given to two) its check refuses: tests/schedules/check; every strategy in every combination:
// matrix_test.cc.

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
  for (const char* strategy : {"replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"}) {
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

TEST(MustNotHappenTest, AParameterBelongsToTwoUnitsOrNone) {
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

}  // namespace
}  // namespace tandem::parity
