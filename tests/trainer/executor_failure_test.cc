// SPDX-License-Identifier: Apache-2.0
// What an executor reports when an instruction, a device, a group or somebody outside fails.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "tests/trainer/executor_fixture.h"
#include "tests/trainer/issuing_backend.h"
#include "tests/trainer/issuing_thread_streams.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

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
