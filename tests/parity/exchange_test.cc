// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <map>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tests/device/seeded_scheduler.h"
#include "tests/parity/exchange_model.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "trainer/failure.h"

namespace tandem::parity {
namespace {

using schedules::Schedule;

// Nodes that communicate on a stream of their own, within the layers of a model.

constexpr Schedule kSchedules[] = {Schedule::kSequential, Schedule::kOverlapped,
                                   Schedule::kOverlappedUndelayed};

struct Layout {
  std::string strategy;
  int ranks;
  int layers;
  int microbatches;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << layout.strategy << ", " << layout.ranks << " ranks, " << layout.layers << " layers, "
             << layout.microbatches << " microbatches";
}

JobRun RunExchange(const plan::JobPlan& plan, RunOptions options = {}) {
  options.make_nodes = ExchangeNodes(plan);
  return RunJob(plan, options);
}

class ExchangeTest : public testing::TestWithParam<Layout> {
 protected:
  JobOptions Options() const {
    const Layout& layout = GetParam();
    return {.strategy = layout.strategy,
            .ranks = layout.ranks,
            .microbatches_per_rank = layout.microbatches,
            .steps = 5,
            .layers = layout.layers,
            .validate_every_steps = 3};
  }
};

TEST_P(ExchangeTest, SchedulesGiveTheSameBits) {
  const JobRun sequential = RunExchange(ExchangeJob(Options(), Schedule::kSequential));
  for (const Schedule schedule : {Schedule::kOverlapped, Schedule::kOverlappedUndelayed}) {
    SCOPED_TRACE(static_cast<int>(schedule));
    ExpectSameBits(sequential, RunExchange(ExchangeJob(Options(), schedule), {.fill_with_nan = true}));
  }
}

// What a rank computes for others is what they would compute themselves.
TEST_P(ExchangeTest, IsTheDecoderOnOneRank) {
  JobOptions options = Options();
  options.fp64 = true;
  JobOptions alone = options;
  alone.ranks = 1;
  alone.microbatches_per_rank = options.ranks * options.microbatches_per_rank;
  const plan::JobPlan decoder = MakeJob(alone);
  const JobRun expected = RunJob(decoder);
  for (const Schedule schedule : kSchedules) {
    SCOPED_TRACE(static_cast<int>(schedule));
    ExpectClose(decoder, expected, RunExchange(ExchangeJob(options, schedule)), kFp64);
  }
}

// From zero, once a forward in training: validations leave it alone, steps do not reset it.
TEST_P(ExchangeTest, NodeStateLivesAcrossStepsAndValidationsLeaveItAlone) {
  for (const Schedule schedule : kSchedules) {
    const plan::JobPlan plan = ExchangeJob(Options(), schedule);
    const JobRun run = RunExchange(plan);
    EXPECT_EQ(run.node_states.size(), size_t(2 * GetParam().layers * GetParam().ranks));
    const int64_t tokens = plan.batch.sequences * plan.batch.sequence_length;
    for (const auto& [name, bytes] : run.node_states) {
      int64_t rows = 0;
      ASSERT_EQ(bytes.size(), sizeof rows);
      std::memcpy(&rows, bytes.data(), sizeof rows);
      EXPECT_EQ(rows, plan.train.steps * GetParam().microbatches * tokens) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ExchangeTest,
                         testing::Values(Layout{"zero3", 2, 2, 4}, Layout{"zero3", 2, 3, 5},
                                         Layout{"zero3", 4, 1, 2}, Layout{"zero2", 2, 3, 2},
                                         Layout{"zero1", 2, 2, 1}, Layout{"replicate", 2, 1, 4},
                                         Layout{"zero3", 1, 2, 2}));

// Buffers as large as what addresses are aligned to, so that one ends where the next begins: what a kernel
// rounds must not follow from that.
const JobOptions kAdjacentBuffers{.ranks = 2,
                                  .microbatches_per_rank = 3,
                                  .steps = 2,
                                  .layers = 2,
                                  .hidden = 8,
                                  .inner = 8,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .sequence_length = 4};

TEST(ExchangePlacementTest, SchedulesThatPlaceBuffersElsewhereGiveTheSameBits) {
  for (uint64_t seed = 7; seed < 27; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    JobOptions options = kAdjacentBuffers;
    options.seed = seed;
    const JobRun sequential = RunExchange(ExchangeJob(options, Schedule::kSequential));
    for (const Schedule schedule : {Schedule::kOverlapped, Schedule::kOverlappedUndelayed}) {
      EXPECT_EQ(FirstDifference(sequential, RunExchange(ExchangeJob(options, schedule))), "");
    }
  }
}

// One instruction at a time, in the orders that a scheduler with a seed chooses.
TEST(ExchangeSeededTest, AnyOrderGivesTheBitsOfTheSequentialSchedule) {
  constexpr uint64_t kFirstSeed = 20261122;
  constexpr int kSeeds = 100;
  std::cout << "seeds from " << kFirstSeed << "\n";
  const JobRun expected = RunExchange(ExchangeJob(kAdjacentBuffers, Schedule::kSequential));
  for (const Schedule schedule : {Schedule::kOverlapped, Schedule::kOverlappedUndelayed}) {
    const plan::JobPlan plan = ExchangeJob(kAdjacentBuffers, schedule);
    for (int i = 0; i < kSeeds; ++i) {
      const uint64_t seed = kFirstSeed + i;
      device::SeededScheduler scheduler(kAdjacentBuffers.ranks, seed);
      const JobRun run = RunExchange(plan, {.fill_with_nan = true, .scheduler = &scheduler});
      ASSERT_EQ(FirstDifference(expected, run), "") << "seed " << seed;
    }
  }
}

// The collectives of nodes are among those that are counted and recorded: an exchange each way of each of two
// nodes a layer, per microbatch.
TEST(ExchangeProfileTest, ExchangesAreRecordedOnTheirStreamAndCounted) {
  const JobOptions options{.ranks = 2, .microbatches_per_rank = 3, .steps = 5};
  const plan::JobPlan plan = ExchangeJob(options, Schedule::kOverlapped);
  const JobRun run = RunExchange(plan, {.with_requests = [](std::vector<trainer::RequestBox>& ranks) {
                                   ranks[0].AddProfile({.id = 7, .steps = 1});
                                 }});
  EXPECT_EQ(run.collectives.at("ep").size(), size_t(4 * options.layers * 3 * options.steps));
  ASSERT_FALSE(run.profiled.empty());
  const schedules::Program& program = plan.stage.train;
  for (const ProfiledStep& step : run.profiled) {
    ASSERT_EQ(step.timeline.instructions.size(), program.instructions.size());
    int exchanges = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.streams[program.instructions[i].stream].name == "dispatch") {
        ++exchanges;
        EXPECT_LT(step.timeline.instructions[i].start_ns, step.timeline.instructions[i].end_ns);
      }
    }
    EXPECT_EQ(exchanges, 4 * options.layers * 3);
  }
}

TEST(ExchangeFailureTest, ALostPeerIsReportedWithTheNodesInstructionAndItsGroup) {
  const plan::JobPlan plan = ExchangeJob({.microbatches_per_rank = 2, .steps = 3}, Schedule::kOverlapped);
  int backwards = 0;  // of one node
  RunOptions options;
  options.make_nodes = ExchangeNodes(plan, [&](const std::string& node, const char* pass) {
    if (node == "layers.1.combine" && std::string(pass) == "backward" && ++backwards == 3) {
      throw comm::CommError("rank 1 is gone");
    }
  });
  try {
    RunJob(plan, options);
    FAIL() << "the error was swallowed";
  } catch (const trainer::InstructionError& error) {
    EXPECT_EQ(error.group, "ep");
    EXPECT_EQ(error.step, 2);
    EXPECT_EQ(error.instruction.find("backward-input layers.1.combine mb "), 0u) << error.instruction;
    EXPECT_EQ(trainer::Describe(std::current_exception()).cause.class_(), v1::FAILURE_CLASS_PEER_LOST);
  }
}

}  // namespace
}  // namespace tandem::parity
