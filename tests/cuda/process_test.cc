// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <string>

#include "device/cuda/device.h"
#include "ops/cuda/operations.h"
#include "tests/trainer/trainer_processes.h"

namespace tandem::trainer {
namespace {

using link::ExitCode;

// Real tandem-trainer-cuda processes over NCCL, a GPU each; the test is their daemon.

constexpr absl::Duration kPatience = absl::Seconds(120);  // the first start reads LibTorch from the disk

class CudaProcessTest : public TrainerProcesses {
 protected:
  CudaProcessTest() : TrainerProcesses(TRAINER_PROGRAM, kPatience) {
    v1::Model& model = *spec_.mutable_model();
    model.set_hidden_size(256);
    model.set_intermediate_size(512);
    model.set_num_hidden_layers(4);
    model.set_num_attention_heads(4);
    model.set_vocab_size(256);
    spec_.mutable_data()->set_train(TRAINER_TEXT);
    v1::Training& training = *spec_.mutable_training();
    training.set_steps(1'000'000);  // until stopped
    training.set_sequence_length(128);
    training.set_micro_batch_size(4);
  }

  void Start(int ranks) {
    spec_.mutable_training()->set_global_batch_size(4 * 2 * ranks);
    spec_.mutable_parallelism()->set_ranks(ranks);
    TrainerProcesses::Start(v1::DEVICE_CUDA);
  }
};

TEST_F(CudaProcessTest, AJobEndsWithACheckpoint) {
  for (int ranks = 1; ranks <= device::CountCudaDevices() && ranks <= 4; ranks *= 2) {
    SCOPED_TRACE(ranks);
    spec_.mutable_training()->set_steps(8);
    spec_.mutable_checkpoint()->set_directory(folder_ + "/" + std::to_string(ranks));
    Start(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      ExpectExit(rank, ExitCode::kDone, kPatience);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto ready = daemon_->WaitFor(
          rank, [](const auto& message) { return message.has_ready(); }, kPatience);
      ASSERT_TRUE(ready.has_value());
      EXPECT_EQ(ready->ready().kernels_digest(), ops::CudaOperations().kernels_digest());
      EXPECT_EQ(ready->ready().kernels_digest().size(), 64u);
    }
    double first = 0;
    double last = 0;
    for (const v1::FromTrainer& message : daemon_->MessagesOf(0)) {
      if (message.has_report()) {
        (message.report().step() == 1 ? first : last) = message.report().loss();
      }
      EXPECT_FALSE(message.has_failed()) << message.ShortDebugString();
    }
    EXPECT_GT(first, last);
    EXPECT_GT(last, 0);
    EXPECT_TRUE(std::filesystem::is_directory(folder_ + "/" + std::to_string(ranks) + "/step-8"));
  }
}

TEST_F(CudaProcessTest, AKilledRankEndsOthersInFiveSeconds) {
  const int ranks = std::min(4, device::CountCudaDevices());
  if (ranks < 2) {
    GTEST_SKIP() << "needs two GPUs";
  }
  Start(ranks);
  ASSERT_TRUE(WaitForReport(5).has_value());
  const auto killed = std::chrono::steady_clock::now();
  kill(daemon_->pid(ranks - 1), SIGKILL);
  for (int rank = 0; rank < ranks - 1; ++rank) {
    ExpectExit(rank, ExitCode::kPeerLost, absl::Seconds(5));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count();
    EXPECT_LE(seconds, 5) << "rank " << rank;
    const auto failed = WaitForFailed(rank);
    ASSERT_TRUE(failed.has_value());
    const v1::Cause& cause = failed->failed();
    std::cout << "rank " << rank << " after " << seconds << " s: step " << cause.step() << ", "
              << cause.instruction() << ", group " << cause.group() << ": " << cause.message() << "\n";
    EXPECT_EQ(cause.reason(), "PeerLost");
    EXPECT_GE(cause.step(), 5);
    EXPECT_NE(cause.instruction(), "");
    EXPECT_NE(cause.group(), "");
    EXPECT_TRUE(cause.message().find("AllGather") != std::string::npos ||
                cause.message().find("AllToAll") != std::string::npos)
        << cause.message();
  }
}

TEST_F(CudaProcessTest, AStopRequestStopsRanksAfterTheirCheckpoint) {
  const int ranks = std::min(2, device::CountCudaDevices());
  spec_.mutable_checkpoint()->set_directory(folder_ + "/stop");
  Start(ranks);
  ASSERT_TRUE(WaitForReport(2).has_value());
  daemon_->Request(ranks - 1, v1::DESIRED_STOP_AFTER_CHECKPOINT, 7);
  for (int rank = 0; rank < ranks; ++rank) {
    ExpectExit(rank, ExitCode::kPreempted, kPatience);
  }
}

TEST_F(CudaProcessTest, APlaceWithoutAGpuIsNamed) {
  spec_.mutable_parallelism()->set_ranks(1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  Start(1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  const auto failed = WaitForFailed(0);
  ASSERT_TRUE(failed.has_value());
  EXPECT_NE(failed->failed().message().find("no GPU can be used here"), std::string::npos)
      << failed->failed().message();
}

TEST_F(CudaProcessTest, AnEnvironmentAgainstOverlappingStreamsIsRefused) {
  spec_.mutable_parallelism()->set_ranks(1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  Start(1);
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const auto failed = WaitForFailed(0);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->failed().class_(), v1::FAILURE_CLASS_USER);
  EXPECT_EQ(failed->failed().reason(), "InvalidEnvironment");
  EXPECT_NE(failed->failed().message().find("CUDA_DEVICE_MAX_CONNECTIONS is 1"), std::string::npos)
      << failed->failed().message();
  ExpectExit(0, ExitCode::kUserError, kPatience);
}

}  // namespace
}  // namespace tandem::trainer
