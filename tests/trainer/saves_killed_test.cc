// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/folder.h"
#include "checkpoint/saved_step.h"
#include "platform/files.h"
#include "tests/trainer/trainer_processes.h"

namespace tandem::trainer {
namespace {

// Real trainers that save every second step beside training, one of which is killed.
class SavesKilledTest : public TrainerProcesses {
 protected:
  SavesKilledTest() : TrainerProcesses(TRAINER_PROGRAM, absl::Seconds(120)) {
    v1::Model& model = *spec_.mutable_model();
    model.set_hidden_size(64);
    model.set_intermediate_size(128);
    model.set_num_hidden_layers(2);
    model.set_num_attention_heads(2);
    model.set_vocab_size(256);
    spec_.mutable_data()->set_train(TRAINER_TEXT);
    v1::Training& training = *spec_.mutable_training();
    training.set_steps(1'000'000);
    training.set_sequence_length(16);
    training.set_micro_batch_size(1);
    training.set_global_batch_size(4);
    spec_.mutable_parallelism()->set_ranks(2);
    v1::Checkpoint& checkpoint = *spec_.mutable_checkpoint();
    checkpoint.set_directory(folder_ + "/checkpoints");
    checkpoint.set_every_steps(2);
    checkpoint.set_keep(2);
    checkpoint.set_resume("newest");
  }

  // Whatever attempt reports a step, it is the same step. Returns the newest whose checkpoint was reported.
  int64_t ReadMessages() {
    int64_t committed = 0;
    for (const v1::FromTrainer& message : daemon_->MessagesOf(0)) {
      if (message.has_checkpoint()) {
        committed = std::max(committed, message.checkpoint().step());
      }
      if (message.has_report()) {
        const v1::StepReport& report = message.report();
        const auto [seen, is_new] = losses_.try_emplace(report.step(), report.loss());
        EXPECT_EQ(seen->second, report.loss()) << "step " << report.step();
        num_repeated_ += is_new ? 0 : 1;
      }
    }
    return committed;
  }

  std::map<int64_t, double> losses_;  // by step
  int num_repeated_ = 0;              // steps that another attempt had reported
};

TEST_F(SavesKilledTest, AKillAnyTimeLeavesOnlyWholeCheckpoints) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  int64_t reached = 0;
  for (int attempt = 1; attempt <= 5; ++attempt) {
    Start(v1::DEVICE_CPU, attempt);
    const auto ready = daemon_->WaitFor(
        0, [](const auto& m) { return m.has_ready(); }, patience_);
    ASSERT_TRUE(ready.has_value());
    EXPECT_GE(ready->ready().resumed_step(), reached);
    ASSERT_TRUE(WaitForReport(ready->ready().resumed_step() + 5).has_value());
    absl::SleepFor(absl::Microseconds(random() % 50'000));  // no wait: it places the kill
    kill(daemon_->pid(static_cast<int>(random() % 2)), SIGKILL);
    reached = std::max(reached, ReadMessages());
    daemon_.reset();  // and with it the rest
    const auto steps = checkpoint::ListSteps(platform::SystemFiles(), folder_ + "/checkpoints");
    ASSERT_TRUE(steps.ok());
    ASSERT_FALSE(steps->empty());
    EXPECT_GE(*std::max_element(steps->begin(), steps->end()), reached)
        << "a checkpoint that was reported is gone";
    for (const int64_t step : *steps) {
      const std::string path = folder_ + "/checkpoints/" + checkpoint::StepName(step);
      const auto saved = checkpoint::SavedStep::Open(platform::SystemFiles(), path);
      ASSERT_TRUE(saved.ok()) << saved.status();
      EXPECT_TRUE(saved->Verify().ok()) << path;
      reached = std::max(reached, step);
    }
  }
  std::cout << reached << " steps saved, " << num_repeated_ << " repeated\n";
}

}  // namespace
}  // namespace tandem::trainer
