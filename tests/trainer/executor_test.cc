#include "trainer/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/thread_communicator.h"
#include "device/arena.h"
#include "device/stream.h"
#include "model/node.h"
#include "ops/operations.h"
#include "plan/memory.h"
#include "tests/parity/job.h"
#include "trainer/backend.h"
#include "trainer/bound_program.h"
#include "trainer/failure.h"
#include "trainer/rank_memory.h"

namespace tandem::trainer {
namespace {

// A group of one rank; with `hang`, all-gathers are started, as a GPU does, and never end.
class HangingCommunicator final : public comm::Communicator {
 public:
  explicit HangingCommunicator(std::string name)
      : inner_(std::move(comm::MakeThreadCommunicators(name, 1)[0])) {}

  const std::string& name() const override { return inner_->name(); }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void AllGather(const at::Tensor& input, at::Tensor& output) override {
    if (hang) {
      ++hanging_;
    } else {
      inner_->AllGather(input, output);
    }
  }
  void AllToAll(const at::Tensor& input, at::Tensor& output) override { inner_->AllToAll(input, output); }
  void Abort() override { inner_->Abort(); }
  absl::Status RegisterWindow(device::Memory) override { return absl::OkStatus(); }
  void CheckPending() override {}
  uint64_t num_collectives() const override { return inner_->num_collectives() + hanging_; }
  uint64_t num_ended() const override { return inner_->num_ended(); }

  std::atomic<bool> hang{false};

 private:
  const std::unique_ptr<comm::Communicator> inner_;
  std::atomic<uint64_t> hanging_{0};
};

// One rank on a plan, without the loop around it.
class ExecutorTest : public testing::Test {
 protected:
  ExecutorTest()
      : plan_(parity::MakeJob({.microbatches_per_rank = 2, .validate_every_steps = 1})),
        nodes_(model::DecoderNodes(plan_.model, plan_.batch, plan_.compute, backend_->operations())),
        memory_(plan_, 0, *backend_, /*poison=*/true) {
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      std::vector<fsdp::ParameterInit> inits(plan_.units[unit].parameters.size(), {.deviation = 0.02});
      memory_.units()[unit].Initialize(1, inits);
    }
    ResetExecutor();
  }

  // One that no error has poisoned, with groups that nobody has aborted.
  void ResetExecutor() {
    executor_.reset();
    groups_.clear();
    for (const char* name : {"gather", "reduce", "norm"}) {
      groups_.push_back(std::make_unique<HangingCommunicator>(name));
    }
    executor_ = std::make_unique<Executor>(
        plan_, nodes_, memory_,
        ExecutorCommunicators{{groups_[0].get(), 0}, {groups_[1].get(), 1}, {groups_[2].get(), 2}}, requests_,
        page_, *backend_, ExecutorOptions{.poison = true});
  }

  RunInputs Inputs(int64_t step) {
    return {.step = step, .learning_rate = 1e-3, .load = [this](int microbatch, int64_t* tokens) {
              const int64_t count = plan_.batch.sequences * (plan_.batch.sequence_length + 1);
              for (int64_t i = 0; i < count; ++i) {
                tokens[i] = (i * 7 + microbatch) % 256;
              }
            }};
  }

  const std::unique_ptr<Backend> backend_ = MakeCpuBackend();
  const plan::JobPlan plan_;
  const std::vector<std::unique_ptr<model::Node>> nodes_;
  RankMemory memory_;
  std::vector<std::unique_ptr<HangingCommunicator>> groups_;
  RequestBox requests_;
  link::SharedPage page_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorTest, AStepLowersTheLossOfTheSameBatch) {
  double loss = 1e9;
  for (int64_t step = 1; step <= 4; ++step) {
    const RunResult result = executor_->Train(Inputs(step));
    ASSERT_EQ(result.losses.size(), 2u);
    EXPECT_TRUE(result.norm.finite);
    EXPECT_GT(result.norm.norm, 0);
    EXPECT_LT(result.losses[0], loss);
    loss = result.losses[0];
  }
}

TEST_F(ExecutorTest, ValidationHasLossesAndNoNorm) {
  const RunResult result = executor_->Validate(Inputs(1));
  EXPECT_EQ(result.losses.size(), static_cast<size_t>(plan_.train.validation_rounds));
  EXPECT_EQ(result.norm.norm, 0);
}

TEST_F(ExecutorTest, NothingOfAProgramStaysInTheArena) {
  EXPECT_EQ(memory_.arena().in_use(), plan::PlanMemoryV1(plan_).persistent_bytes);
  executor_->Train(Inputs(1));
  EXPECT_EQ(memory_.arena().in_use(), plan::PlanMemoryV1(plan_).persistent_bytes);
  EXPECT_EQ(memory_.arena().peak(), plan::PlanMemoryV1(plan_).arena_bytes);
}

TEST_F(ExecutorTest, ThePageTellsWhatRan) {
  executor_->Train(Inputs(1));
  EXPECT_GE(page_.instruction, 0);
  EXPECT_LT(page_.instruction, static_cast<int64_t>(plan_.train_program.instructions.size()));
  EXPECT_GT(page_.progress_monotonic_ns, 0);
  for (size_t i = 0; i < groups_.size(); ++i) {
    EXPECT_EQ(page_.collectives[i], groups_[i]->num_collectives()) << i;
    EXPECT_GT(page_.collectives[i], 0u);
  }
}

TEST_F(ExecutorTest, RequestsOfThisRankComeBackWithTheNorm) {
  requests_.Add(kRequestCheckpoint, 4);
  EXPECT_EQ(executor_->Train(Inputs(1)).norm.requests, uint32_t{kRequestCheckpoint});
  EXPECT_EQ(executor_->Train(Inputs(2)).norm.requests, 0u);
}

TEST_F(ExecutorTest, NothingIsRecordedUnlessItIsWanted) {
  EXPECT_FALSE(executor_->Train(Inputs(1)).recorded.has_value());
}

TEST_F(ExecutorTest, ARecordingKeepsTheOrderOfStreamsAndWaits) {
  for (const Recording recording : {Recording::kOverlapped, Recording::kAlone}) {
    RunInputs inputs = Inputs(7);
    inputs.recording = recording;
    const RunResult result = executor_->Train(inputs);
    ASSERT_TRUE(result.recorded.has_value());
    const schedules_v1::Timeline& timeline = result.recorded->timeline;
    const auto& instructions = plan_.train_program.instructions;
    EXPECT_EQ(timeline.program, "train");
    EXPECT_EQ(timeline.step, 7);
    EXPECT_EQ(timeline.alone, recording == Recording::kAlone);
    EXPECT_GT(result.recorded->start_unix_ns, 0);
    ASSERT_EQ(timeline.instructions.size(), instructions.size());
    std::map<schedules_v1::StreamKind, int64_t> end;
    int64_t last_end = 0;
    for (size_t i = 0; i < instructions.size(); ++i) {
      const schedules_v1::InstructionTime& time = timeline.instructions[i];
      EXPECT_LE(end[instructions[i].stream], time.start_ns) << i;
      EXPECT_LE(time.start_ns, time.end_ns) << i;
      for (const int wait : instructions[i].waits) {
        EXPECT_LE(timeline.instructions[wait].end_ns, time.start_ns) << i << " waits for " << wait;
      }
      if (recording == Recording::kAlone) {
        EXPECT_LE(last_end, time.start_ns) << i;
      }
      if (instructions[i].opcode == schedules_v1::Opcode::kForward) {
        EXPECT_LT(time.start_ns, time.end_ns);
        EXPECT_GT(time.cpu_ns, 0);
      }
      end[instructions[i].stream] = last_end = time.end_ns;
    }
  }
}

TEST_F(ExecutorTest, TheFirstErrorIsToldOnceWithItsInstruction) {
  RunInputs inputs = Inputs(3);
  std::atomic<int> loads{0};
  inputs.load = [&](int microbatch, int64_t*) {
    ++loads;
    throw std::runtime_error("no text for microbatch " + std::to_string(microbatch));
  };
  try {
    executor_->Train(inputs);
    FAIL() << "the error was swallowed";
  } catch (const InstructionError& error) {
    EXPECT_EQ(error.step, 3);
    EXPECT_NE(error.instruction.find("load"), std::string::npos) << error.instruction;
    EXPECT_STREQ(error.what(), "no text for microbatch 0");
  }
  EXPECT_THROW(executor_->Train(inputs), InstructionError);  // poisoned
  executor_.reset();
  EXPECT_EQ(loads, 1);
}

// On the host, so that it is told on every device, and without waiting for one.
TEST_F(ExecutorTest, ATokenOutsideTheVocabularyIsTheUsersErrorInOneLine) {
  for (const int64_t id : {int64_t{256}, int64_t{-1}}) {
    RunInputs inputs = Inputs(1);
    inputs.load = [this, id, good = inputs.load](int microbatch, int64_t* tokens) {
      good(microbatch, tokens);
      if (microbatch == 1) {
        tokens[plan_.batch.sequence_length + 1 + 3] = id;
      }
    };
    ResetExecutor();
    try {
      executor_->Train(inputs);
      FAIL() << "the token was taken";
    } catch (const InstructionError& error) {
      EXPECT_EQ(error.what(), "data: microbatch 1 of this rank has token id " + std::to_string(id) +
                                  " at position 3 of sequence 1; a model with model.vocab_size 256 takes ids "
                                  "from 0 to 255: use the tokenizer that the vocabulary belongs to");
      EXPECT_EQ(Describe(std::current_exception()).kind, FailureKind::kUser);
    }
  }
}

TEST_F(ExecutorTest, ALostCommunicatorNamesTheGroup) {
  groups_[1]->Abort();
  try {
    executor_->Train(Inputs(1));
    FAIL() << "the error was swallowed";
  } catch (const InstructionError& error) {
    EXPECT_EQ(error.group, "reduce");
    EXPECT_EQ(Describe(std::current_exception()).kind, FailureKind::kPeerLost);
  }
}

TEST_F(ExecutorTest, AnErrorFromOutsideEndsTheRun) {
  executor_->Fail(std::make_exception_ptr(std::runtime_error("the reporter lost its peers")));
  EXPECT_THROW(executor_->Train(Inputs(1)), std::runtime_error);
}

// What a watch does with a collective that hangs.
TEST_F(ExecutorTest, ALossIsToldWithTheOldestCollectiveThatHasNotEnded) {
  executor_->Train(Inputs(1));
  RunInputs inputs = Inputs(2);
  const uint64_t before = groups_[0]->num_collectives();
  inputs.load = [&](int, int64_t*) {
    while (groups_[0]->num_collectives() == before) {
      std::this_thread::yield();  // the gather stream has not come to it yet
    }
    executor_->Lose(std::make_exception_ptr(comm::CommError("rank 1 is gone")));
  };
  // The first gather of the step hangs: it has been issued, and does not end.
  groups_[0]->hang = true;
  try {
    executor_->Train(inputs);
    FAIL() << "the error was swallowed";
  } catch (const InstructionError& error) {
    EXPECT_EQ(error.step, 2);
    EXPECT_EQ(error.group, "gather");
    EXPECT_NE(error.instruction.find("unshard"), std::string::npos) << error.instruction;
    EXPECT_STREQ(error.what(), "group gather rank 0 AllGather: rank 1 is gone");
  }
}

// Nothing in a segment waits but its first instruction, and only its last is waited for; otherwise merging
// would reorder what the program orders.
TEST_F(ExecutorTest, SegmentsKeepTheOrderOfEveryStreamAndEveryWait) {
  RankMemory memory(plan_, 0, *backend_, false);
  const BoundProgram bound(plan_.train_program, plan_, nodes_, memory);
  std::vector<int> segment_of(plan_.train_program.instructions.size(), -1);
  std::map<schedules_v1::StreamKind, int> last;
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
  for (const schedules_v1::Instruction& instruction : plan_.train_program.instructions) {
    const auto index = static_cast<size_t>(&instruction - plan_.train_program.instructions.data());
    ASSERT_GE(segment_of[index], 0);
    for (const int wait : instruction.waits) {
      const Segment& awaited = bound.segments()[segment_of[wait]];
      EXPECT_TRUE(awaited.awaited);
      EXPECT_EQ(awaited.instructions.back()->index, wait);
      const std::vector<int>& waits = bound.segments()[segment_of[index]].waits;
      EXPECT_NE(std::find(waits.begin(), waits.end(), segment_of[wait]), waits.end());
      EXPECT_LT(segment_of[wait], segment_of[index]);
    }
  }
}

}  // namespace
}  // namespace tandem::trainer
