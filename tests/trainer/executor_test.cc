// SPDX-License-Identifier: Apache-2.0
#include "trainer/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plan/recorded_steps.h"
#include "tests/trainer/counted_allocations.h"
#include "tests/trainer/executor_fixture.h"
#include "tests/trainer/issuing_backend.h"
#include "tests/trainer/issuing_thread_streams.h"
#include "trainer/bound_program.h"
#include "trainer/failure.h"
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

using ExecutorFailureTest = ExecutorOfTwoRanksTest;

// The error that `call` throws, which must be an instruction's.
template <typename Call>
InstructionError ErrorOf(const Call& call) {
  try {
    call();
  } catch (const InstructionError& error) {
    return error;
  }
  throw std::logic_error("no instruction failed");
}

// A failed GPU reports its error to the next call, not to the instruction that caused it.
TEST_F(ExecutorFailureTest, FailedDeviceNamesStepAndLastInstruction) {
  IssuingBackend backend;
  Executor executor(plan_, nodes_, units_, memory_, *communicators_, page_, backend);
  executor.Issue(Begin(1), Load());
  executor.Await();
  backend.issuing.streams.at("device-to-host").failed = true;
  executor.Issue(Train(2), Load());
  const InstructionError error = ErrorOf([&] { executor.Await(); });
  EXPECT_GE(error.step, 1);
  EXPECT_EQ(error.instruction, "") << "nobody knows";
  EXPECT_EQ(std::string(error.what()).find("an illegal address; after "), 0u) << error.what();
}

TEST_F(ExecutorFailureTest, FirstErrorIsReportedWithItsInstruction) {
  std::atomic<int> loads{0};
  executor_->Issue(Begin(3), [&](int microbatch, int64_t*) {
    ++loads;
    throw std::runtime_error("no text for microbatch " + std::to_string(microbatch));
  });
  const InstructionError error = ErrorOf([&] { executor_->Await(); });
  EXPECT_EQ(error.step, 3);
  EXPECT_NE(error.instruction.find("load"), std::string::npos) << error.instruction;
  EXPECT_STREQ(error.what(), "no text for microbatch 0");
  EXPECT_THROW(executor_->Issue(Begin(3), Load()), InstructionError);
  executor_.reset();
  EXPECT_EQ(loads, 1);
}

TEST_F(ExecutorFailureTest, RepeatedDeviceErrorKeepsItsInstruction) {
  IssuingThreadStreams streams;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(streams);
  Executor executor(plan_, nodes_, units_, memory_, *communicators_, page_, *backend);
  executor.Issue(Begin(1), Load());
  EXPECT_EQ(executor.Await().losses.size(), 2u);
  factory_.made.at("dp_cp_ag")->Abort();
  const InstructionError error = ErrorOf([&] {
    executor.Issue(Train(2), Load());
    executor.Await();
  });
  EXPECT_EQ(error.step, 2);
  EXPECT_EQ(error.group, "dp_cp_ag");
}

TEST_F(ExecutorFailureTest, LaterRunsErrorNamesItsOwnStep) {
  executor_->Issue(Begin(1), Load());
  executor_->Issue(Train(2), [](int, int64_t*) { throw std::runtime_error("no text"); });
  const InstructionError error = ErrorOf([&] {
    executor_->Await();
    executor_->Await();
  });
  EXPECT_EQ(error.step, 2);
}

TEST_F(ExecutorFailureTest, ValidationErrorNamesItsWeightsStep) {
  executor_->Issue(
      {.run = {.kind = RunKind::kValidate}}, [](int, int64_t*) { throw std::runtime_error("no text"); }, 7);
  const InstructionError error = ErrorOf([&] { executor_->Await(); });
  EXPECT_EQ(error.step, 7);
}

TEST_F(ExecutorFailureTest, ALostCommunicatorNamesTheGroup) {
  factory_.made.at("dp_cp_ag")->Abort();
  const InstructionError error = ErrorOf([&] { IssueAndAwait(Begin(1)); });
  EXPECT_EQ(error.group, "dp_cp_ag");
  EXPECT_EQ(Describe(std::make_exception_ptr(error)).cause.class_(), v1::FAILURE_CLASS_PEER_LOST);
}

TEST_F(ExecutorFailureTest, AnErrorFromOutsideEndsTheRun) {
  executor_->Fail(std::make_exception_ptr(std::runtime_error("the reporter lost its peers")));
  EXPECT_THROW(IssueAndAwait(Begin(1)), std::runtime_error);
}

// What a watchdog does with a collective that hangs, while the run behind it is issued already.
TEST_F(ExecutorFailureTest, LostPeerNamesTheOldestPendingCollective) {
  IssueAndAwait(Begin(1));
  HangingCommunicator& gather = *factory_.made.at("dp_cp_ag");
  const uint64_t before = gather.num_collectives();
  // The first gather of the step hangs: it has been issued, and does not end.
  gather.hang = true;
  // The batch comes when the watchdog has spoken, so that the run cannot end before. The data thread may ask
  // for the next one until the executor is gone.
  const auto failed = std::make_shared<std::atomic<bool>>(false);
  const std::jthread watchdog([&, failed] {
    while (gather.num_collectives() == before) {
      std::this_thread::yield();  // the gather stream has not come to it yet
    }
    executor_->FailHungCollective(
        std::make_exception_ptr(comm::CommError("group dp_cp rank 0 AllToAll number 12: rank 1 is gone")));
    *failed = true;
  });
  executor_->Issue(Train(2), [failed](int, int64_t*) {
    while (!*failed) {
      std::this_thread::yield();
    }
  });
  const InstructionError error = ErrorOf([&] {
    executor_->Issue(Train(3), Load());
    executor_->Await();
  });
  EXPECT_EQ(error.step, 2);
  EXPECT_EQ(error.group, "dp_cp_ag");
  EXPECT_NE(error.instruction.find("unshard"), std::string::npos) << error.instruction;
  EXPECT_STREQ(error.what(), "group dp_cp rank 0 AllToAll number 12: rank 1 is gone")
      << "who noticed it, and nothing of the group that hangs";
}

TEST_F(ExecutorFailureTest, LaterCollectiveOfAnInstructionIsFound) {
  IssueAndAwait(Begin(1));
  HangingCommunicator& gather = *factory_.made.at("dp_cp_ag");
  gather.two_at_once = true;
  gather.hang = true;
  executor_->Issue(Train(2), Load());
  executor_->Await();  // on the CPU the run goes on
  const InstructionError error = ErrorOf([&] {
    std::rethrow_exception(
        executor_->FailHungCollective(std::make_exception_ptr(comm::CommError("rank 1 is gone"))));
  });
  EXPECT_EQ(error.group, "dp_cp_ag");
  EXPECT_NE(error.instruction.find("unshard"), std::string::npos) << error.instruction;
}

// On a GPU the issuing thread itself waits for the batches.
TEST_F(ExecutorFailureTest, OutsideErrorEndsASlowWait) {
  IssuingThreadStreams streams;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(streams);
  std::promise<void> asked;
  std::promise<void> go_on;
  Executor executor(plan_, nodes_, units_, memory_, *communicators_, page_, *backend);
  std::thread watchdog([&] {
    asked.get_future().wait();
    executor.Fail(std::make_exception_ptr(comm::CommError("rank 1 is gone")));
  });
  EXPECT_THROW(executor.Issue(Begin(1),
                              [&, first = std::make_shared<std::atomic<bool>>(true),
                               may = go_on.get_future().share()](int, int64_t*) {
                                if (first->exchange(false)) {
                                  asked.set_value();
                                }
                                may.wait();
                              }),
               comm::CommError);
  watchdog.join();
  go_on.set_value();
}

}  // namespace
}  // namespace tandem::trainer
