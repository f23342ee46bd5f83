// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "fsdp/unit_mesh.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// What each strategy does beside having the right numbers (matrix_test.cc).

constexpr int kRanks = 4;
constexpr int kRounds = 2;
constexpr int kSteps = 3;

JobOptions Job(const std::string& strategy) {
  return {.strategy = strategy,
          .ranks = kRanks,
          .replicas = ReplicasOf(strategy),
          .microbatches_per_rank = kRounds,
          .steps = kSteps,
          .hidden = 16,
          .inner = 24,
          .heads = 2,
          .kv_heads = 1,
          .sequence_length = 8};
}

// Per run. A gather counts for the run that reads it, so the runs that compute steps have all of them.
struct CollectiveCounts {
  int layer_gathers;  // over the inner group
  int other_gathers;  // of embedding and head
  int reductions;     // exchanges over the inner group
  int put_together;   // all-gathers of reduced gradients over the inner group
  int outer_gathers;
  int outer_reductions;
  int outer_put_together;
};

const std::map<std::string, CollectiveCounts>& CountsOf() {
  static const auto* const counts =
      new std::map<std::string, CollectiveCounts>{{"replicate", {0, 0, 1, 1, 0, 0, 0}},
                                                  {"zero1", {1, 1, 1, 0, 0, 0, 0}},
                                                  {"zero2", {1, 1, kRounds, 0, 0, 0, 0}},
                                                  {"zero3", {2 * kRounds, kRounds, kRounds, 0, 0, 0, 0}},
                                                  {"hsdp", {2 * kRounds, kRounds, kRounds, 0, 0, 1, 1}},
                                                  {"hfsdp", {2 * kRounds, kRounds, kRounds, 0, 1, 1, 0}}};
  return *counts;
}

class StrategyTest : public testing::TestWithParam<std::string> {};

bool GivesUp(const std::string& strategy) { return CountsOf().at(strategy).layer_gathers == 2 * kRounds; }

// What the programs say, and what is counted at the communicators of rank 0.
void ExpectCounts(const JobOptions& options) {
  const plan::JobPlan plan = MakeJob(options);
  const JobRun run = RunJob(plan);
  const CollectiveCounts& counts = CountsOf().at(options.strategy);
  using Key = std::tuple<std::string, bool, int64_t>;  // group, all-gather, bytes of the input
  std::map<Key, int> expected;
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    const fsdp::UnitMesh mesh = plan::MeshOf(plan, unit, 0);
    const fsdp::Layout& layout = plan.layouts[unit][0];
    const int64_t shard = fsdp::ShardElements(layout, mesh);
    const int64_t piece = fsdp::PieceElements(layout, mesh);
    const int64_t all = fsdp::PaddedElements(layout, mesh);
    const std::string& name = plan.units[unit].name;
    const bool kept = options.keep_gathered == "all" || options.keep_gathered == name;
    const int layer_gathers = kept ? kRounds : counts.layer_gathers;
    const std::string& inner = plan.options.dense.inner_group;
    const auto add = [&](const std::string& group, bool all_gather, int64_t elements, int count) {
      if (count > 0) {
        expected[{group, all_gather, elements * 4}] += kSteps * count;
      }
    };
    add("dp_cp_ag", true, shard, name.starts_with("layers.") ? layer_gathers : counts.other_gathers);
    add(inner, false, all, counts.reductions);
    add(inner, true, shard, counts.put_together);
    add(plan.options.dense.outer_group, true, piece, counts.outer_gathers + counts.outer_put_together);
    add(plan.options.dense.outer_group, false, shard, counts.outer_reductions);
  }
  std::map<Key, int> seen;
  for (const auto& [group, collectives] : run.collectives) {
    if (group == plan.options.norm_group) {
      EXPECT_EQ(collectives.size(), static_cast<size_t>(kSteps)) << "one exchange a norm";
      continue;
    }
    for (const Collective& collective : collectives) {
      ++seen[{group, collective.operation == "AllGather", collective.bytes}];
    }
  }
  EXPECT_EQ(seen, expected);

  // The programs say the same: begin once, train for the others.
  const auto in_runs = [&](schedules::Opcode opcode) {
    const auto in = [&](const schedules::Program& program) {
      return std::count_if(program.instructions.begin(), program.instructions.end(),
                           [&](const auto& instruction) { return instruction.opcode == opcode; });
    };
    return in(plan.stage.begin) + (kSteps - 1) * in(plan.stage.train);
  };
  int64_t of_programs = in_runs(schedules::Opcode::kUnshard) + in_runs(schedules::Opcode::kUnshardOuter) +
                        in_runs(schedules::Opcode::kReduceGradients) * (1 + counts.put_together) +
                        in_runs(schedules::Opcode::kReduceOuter) * (1 + counts.outer_put_together);
  for (const auto& [key, count] : seen) {
    of_programs -= count;
  }
  EXPECT_EQ(of_programs, 0);
}

// A layer that is computed again is gathered once for that and its backward.
TEST_P(StrategyTest, UnitsAreGatheredAndReducedAsPlaced) {
  for (const char* recompute : {"off", "layer", "attention,mlp"}) {
    for (const char* kept : {"none", "layers.1", "all"}) {
      if (GivesUp(GetParam()) || std::string(kept) == "none") {
        SCOPED_TRACE(testing::Message() << "recompute " << recompute << ", kept " << kept);
        JobOptions options = Job(GetParam());
        options.recompute = recompute;
        options.keep_gathered = kept;
        ExpectCounts(options);
      }
    }
  }
}

TEST_P(StrategyTest, AllowedOrdersGiveTheSameBits) {
  JobOptions options = Job(GetParam());
  options.steps = 2;
  options.layers = 1;
  const plan::JobPlan plan = MakeJob(options);
  ExpectSameBitsInOrders(RunJob(plan), plan, 10);
}

// Saved under one strategy, resumed under every other: the steps that follow are those of the job that went
// on, bit for bit where both add in one order: that of one rank, or within the replicas and then over them.
TEST_P(StrategyTest, ACheckpointIsResumedUnderEveryStrategy) {
  const TemporaryFolder folder;
  const auto job = [](const std::string& strategy) {
    JobOptions options = Job(strategy);
    options.microbatches_per_rank = 1;
    options.steps = 4;
    options.fp64 = true;
    return options;
  };
  JobOptions saving = job(GetParam());
  saving.checkpoint_directory = folder.path();
  saving.checkpoint_every_steps = 2;
  const JobRun whole = RunJob(MakeJob(saving));
  ASSERT_EQ(whole.checkpoints, (std::vector<int64_t>{2, 4}));
  for (const auto& [strategy, counts] : CountsOf()) {
    SCOPED_TRACE(strategy);
    const TemporaryFolder other;
    JobOptions resuming = job(strategy);
    resuming.checkpoint_directory = other.path();
    resuming.resume = folder.path() + "/step-2";
    const plan::JobPlan plan = MakeJob(resuming);
    const JobRun run = RunJob(plan);
    EXPECT_EQ(run.resumed_step, 2);
    if ((strategy[0] == 'h') == (GetParam()[0] == 'h')) {
      ExpectSameBits(Tail(whole, 3), run);
    } else {
      ExpectClose(plan, Tail(whole, 3), run, kFp64);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StrategyTest,
                         testing::Values("replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::parity
