// SPDX-License-Identifier: Apache-2.0
#include "trainer/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plan/recorded_steps.h"
#include "tests/trainer/counted_allocations.h"
#include "tests/trainer/executor_fixture.h"
#include "tests/trainer/issuing_backend.h"
#include "trainer/bound_program.h"
#include "trainer/requests.h"

namespace tandem::trainer {
namespace {

TEST_F(ExecutorOfTwoRanksTest, StreamsOfGroupsWithHighPriorityHaveIt) {
  plan::JobPlan plan = plan_;
  plan.group_options["dp_cp_ag"].high_priority = true;
  plan.group_options["dp_cp"].max_ctas = 4;
  IssuingBackend backend;
  const Executor executor(plan, nodes_, units_, memory_, *communicators_, page_, backend, ExecutorOptions());
  for (const auto& [stream, priority] : backend.issuing.priorities) {
    EXPECT_EQ(priority == device::StreamPriority::kHigh, stream == "gather") << stream;
  }
  EXPECT_EQ(backend.issuing.priorities.count("gather"), 1u);
}

TEST_F(ExecutorTest, StepsLowerTheLossOfTheSameBatch) {
  double loss = IssueAndAwait(Begin(1)).losses.at(0);
  for (int64_t step = 2; step <= 4; ++step) {
    const RunRecord record = IssueAndAwait(Train(step));
    ASSERT_EQ(record.losses.size(), 2u);
    EXPECT_TRUE(record.outcome.applied);
    EXPECT_GT(record.outcome.norm, 0);
    EXPECT_LT(record.losses[0], loss);
    loss = record.losses[0];
  }
}

TEST_F(ExecutorTest, TrainMeansUpdateThenBegin) {
  const RunRecord first = IssueAndAwait(Begin(1));
  const RunRecord joined = IssueAndAwait(Train(2));
  const RunRecord end = IssueAndAwait(Update(2));
  InitializeUnits();
  EXPECT_EQ(IssueAndAwait(Begin(1)).losses, first.losses);
  const RunRecord update = IssueAndAwait(Update(1));
  const RunRecord begin = IssueAndAwait(Begin(2));
  EXPECT_EQ(begin.losses, joined.losses);
  EXPECT_EQ(begin.outcome.norm, joined.outcome.norm);
  ASSERT_EQ(update.norms.size(), joined.norms.size());
  for (size_t i = 0; i < update.norms.size(); ++i) {
    EXPECT_EQ(update.norms[i].update.squares.value(), joined.norms[i].update.squares.value()) << i;
  }
  EXPECT_TRUE(begin.norms.empty());
  EXPECT_EQ(IssueAndAwait(Update(2)).norms.front().weight.squares.value(),
            end.norms.front().weight.squares.value());
}

TEST_F(ExecutorTest, TwoRunsInFlightChangeNothing) {
  std::vector<double> apart;
  apart.push_back(IssueAndAwait(Begin(1)).losses[0]);
  for (int64_t step = 2; step <= 5; ++step) {
    apart.push_back(IssueAndAwait(Train(step)).losses[0]);
  }
  InitializeUnits();
  std::vector<double> ahead;
  executor_->Issue(Begin(1), Load());
  for (int64_t step = 2; step <= 5; ++step) {
    executor_->Issue(Train(step), Load());
    ahead.push_back(executor_->Await().losses[0]);
  }
  ahead.push_back(executor_->Await().losses[0]);
  EXPECT_EQ(ahead, apart);
  EXPECT_EQ(executor_->in_flight(), 0);
}

TEST_F(ExecutorTest, AThirdRunInFlightIsRefused) {
  executor_->Issue(Begin(1), Load());
  executor_->Issue(Train(2), Load());
  EXPECT_THROW(executor_->Issue(Train(3), Load()), std::logic_error);
}

TEST_F(ExecutorTest, ValidationHasLossesAndNoNorm) {
  const RunRecord record = IssueAndAwait({.run = {.kind = RunKind::kValidate}});
  EXPECT_EQ(record.losses.size(), static_cast<size_t>(plan_.options.num_validation_microbatches));
  EXPECT_EQ(record.outcome.norm, 0);
}

// Whether what every stream has issued is finished.
void SetFinished(IssuingBackend& backend, bool finished) {
  for (auto& [name, stream] : backend.issuing.streams) {
    stream.finished = finished;
  }
}

TEST_F(ExecutorTest, ThePageSaysWhatFinished) {
  IssueAndAwait(Begin(1));
  // The page counts over all programs in a row: train comes before begin.
  const auto train = static_cast<int64_t>(plan_.stage.train.instructions.size());
  EXPECT_GE(page_.instruction, train);
  EXPECT_LT(page_.instruction, train + static_cast<int64_t>(plan_.stage.begin.instructions.size()));
  EXPECT_EQ(page_.step, 1);
  EXPECT_GT(page_.progress_monotonic_ns, 0);
  for (size_t i = 0; i < communicators_->size(); ++i) {
    EXPECT_EQ(page_.collectives[i], (*communicators_)[i].num_collectives()) << i;
    // A rank alone exchanges no contributions.
    EXPECT_EQ(page_.collectives[i] > 0u, (*communicators_)[i].name() != "dp_cp") << i;
  }
}

TEST_F(ExecutorOfTwoRanksTest, PageShowsWhatAnIssuingDeviceFinished) {
  IssuingBackend backend;
  Executor executor(plan_, nodes_, units_, memory_, *communicators_, page_, backend);
  SetFinished(backend, false);
  executor.Issue(Begin(1), Load());
  EXPECT_EQ(page_.instruction, -1) << "it was issued";
  backend.issuing.streams.at("gather").finished = true;
  while (page_.instruction < 0) {
    std::this_thread::yield();
  }
  // The page counts over all programs in a row: train comes before begin.
  const auto train = static_cast<int64_t>(plan_.stage.train.instructions.size());
  const schedules::Instruction& last = plan_.stage.begin.instructions.at(page_.instruction - train);
  EXPECT_EQ(last.opcode, schedules::Opcode::kUnshard);
  EXPECT_EQ(page_.step, 1);
  SetFinished(backend, true);
  executor.Await();
  EXPECT_GT(page_.instruction, train + (&last - plan_.stage.begin.instructions.data()));
  EXPECT_EQ(plan_.stage.begin.instructions.at(page_.instruction - train).opcode,
            schedules::Opcode::kGradientNorm);
}

TEST_F(ExecutorTest, PageShowsTheStepBegun) {
  IssuingBackend backend;
  Executor executor(plan_, nodes_, units_, memory_, *communicators_, page_, backend);
  SetFinished(backend, false);
  executor.Issue(Begin(501), Load());
  EXPECT_EQ(page_.step, 501) << "of a resumed job";
  EXPECT_EQ(page_.instruction, -1);
  executor.Issue(Train(502), Load());
  EXPECT_EQ(page_.step, 501) << "it is in progress still";
  SetFinished(backend, true);
  executor.Await();
  executor.Await();
}

// What is bound once goes to the streams by reference. A run may cost a few, each of its segments none.
TEST_F(ExecutorOfTwoRanksTest, IssuingAllocatesNothingForASegment) {
  IssuingBackend backend;
  Executor executor(plan_, nodes_, units_, memory_, *communicators_, page_, backend);
  for (auto& [name, stream] : backend.issuing.streams) {
    stream.runs = false;
  }
  const BoundProgram bound(plan_.stage.train,
                           [](const schedules::Instruction&, int) { return std::make_shared<const Call>(); });
  ASSERT_GT(bound.segments().size(), 30u);
  executor.Issue(Begin(1), Load());
  for (int64_t step = 2; step <= 4; ++step) {
    executor.Issue(Train(step), Load());
    executor.Await();
  }
  executor.Await();
  const RunRequest request = Train(5);
  BatchReader::Load load = Load();
  const CountedAllocations counted;
  executor.Issue(request, std::move(load));
  const int64_t count = counted.count();
  EXPECT_GT(count, 0) << "allocations are not counted";
  EXPECT_LT(count, 10);
}

// The copies of a run go ahead of the run before it.
TEST_F(ExecutorTest, ThePagesStepNeverGoesBack) {
  std::atomic<bool> over{false};
  std::atomic<int64_t> backwards{0};
  {
    const std::jthread daemon([&] {
      int64_t last = 0;
      while (!over) {
        const int64_t step = page_.step;
        backwards += step < last ? 1 : 0;
        last = step;
      }
    });
    executor_->Issue(Begin(1), Load());
    for (int64_t step = 2; step <= 20; ++step) {
      executor_->Issue(Train(step), Load());
      executor_->Await();
    }
    executor_->Await();
    over = true;
  }
  EXPECT_EQ(backwards, 0);
  EXPECT_EQ(page_.step, 20);
}

TEST_F(ExecutorTest, RequestsReturnWithTheNorm) {
  RunRequest request = Begin(1);
  request.requests = kRequestCheckpoint;
  EXPECT_EQ(IssueAndAwait(request).outcome.requests, uint32_t{kRequestCheckpoint});
  EXPECT_EQ(IssueAndAwait(Train(2)).outcome.requests, 0u);
}

TEST_F(ExecutorTest, NothingIsRecordedUnlessItIsWanted) {
  IssueAndAwait(Begin(1));
  EXPECT_FALSE(executor_->TakeRecorded().has_value());
}

TEST_F(ExecutorTest, RecordingKeepsStreamsAndWaits) {
  IssueAndAwait(Begin(1));
  int64_t step = 1;
  for (const Recording recording : {Recording::kOverlapped, Recording::kSerialized}) {
    RunRequest request = Train(++step);
    request.run.recording = recording;
    IssueAndAwait(request);
    const std::optional<v1::StepTimeline> recorded = executor_->TakeRecorded();
    ASSERT_TRUE(recorded.has_value());
    const schedules::Timeline timeline = plan::ToTimeline(*recorded);
    const std::vector<schedules::Instruction>& instructions = plan_.stage.train.instructions;
    EXPECT_EQ(timeline.program, "train");
    EXPECT_EQ(timeline.step, step);
    EXPECT_EQ(timeline.serialized, recording == Recording::kSerialized);
    EXPECT_GT(recorded->start_unix_ns(), 0);
    ASSERT_EQ(timeline.instructions.size(), instructions.size());
    std::map<schedules::StreamId, int64_t> end;
    int64_t last_end = INT64_MIN;
    for (size_t i = 0; i < instructions.size(); ++i) {
      const schedules::InstructionTime& time = timeline.instructions[i];
      if (end.contains(instructions[i].stream)) {
        EXPECT_LE(end[instructions[i].stream], time.start_ns) << i;
      }
      EXPECT_GE(time.start_ns, 0) << i;
      EXPECT_LE(time.start_ns, time.end_ns) << i;
      for (const schedules::Wait& wait : instructions[i].waits) {
        EXPECT_LE(timeline.instructions[wait.instruction].end_ns, time.start_ns)
            << i << " waits for " << wait.instruction;
      }
      if (recording == Recording::kSerialized) {
        EXPECT_LE(last_end, time.start_ns) << i;
      }
      if (instructions[i].opcode == schedules::Opcode::kForward) {
        EXPECT_LT(time.start_ns, time.end_ns);
        EXPECT_GT(time.cpu_ns, 0);
      }
      end[instructions[i].stream] = last_end = time.end_ns;
    }
  }
}

// Nothing in a segment waits but its first instruction, and only its last is waited for; otherwise merging
// would reorder what the program orders.
TEST_F(ExecutorTest, SegmentsKeepStreamsAndWaits) {
  const schedules::Program& program = plan_.stage.train;
  const BoundProgram bound(program,
                           [](const schedules::Instruction&, int) { return std::make_shared<const Call>(); });
  std::vector<int> segment_of(program.instructions.size(), -1);
  std::map<schedules::StreamId, int> last;
  for (size_t s = 0; s < bound.segments().size(); ++s) {
    const Segment& segment = bound.segments()[s];
    for (size_t i = 0; i < segment.instructions.size(); ++i) {
      const BoundInstruction& instruction = *segment.instructions[i];
      EXPECT_EQ(instruction.instruction->stream, segment.stream);
      EXPECT_TRUE(i == 0 || instruction.instruction->waits.empty());
      const auto [entry, first] = last.try_emplace(segment.stream, -1);
      EXPECT_GT(instruction.index, entry->second);
      entry->second = instruction.index;
      segment_of[instruction.index] = static_cast<int>(s);
    }
  }
  for (size_t index = 0; index < program.instructions.size(); ++index) {
    ASSERT_GE(segment_of[index], 0);
    for (const schedules::Wait& wait : program.instructions[index].waits) {
      const Segment& awaited = bound.segments()[segment_of[wait.instruction]];
      EXPECT_TRUE(awaited.awaited);
      EXPECT_EQ(awaited.instructions.back()->index, wait.instruction);
      const std::vector<int>& waits = bound.segments()[segment_of[index]].waits;
      EXPECT_NE(std::find(waits.begin(), waits.end(), segment_of[wait.instruction]), waits.end());
      EXPECT_LT(segment_of[wait.instruction], segment_of[index]);
    }
  }
}

}  // namespace
}  // namespace tandem::trainer
