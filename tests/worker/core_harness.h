// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "proto/protocol.h"
#include "tests/platform/fake_clock.h"
#include "worker/step.h"

namespace tandem::worker {

inline const AttemptKey kJob{.job = "j", .attempt = 1};

// The core of the daemon with a clock that the test moves. Keeps the core's commands until the test takes
// them.
class CoreHarness {
 public:
  explicit CoreHarness(int num_slots = 4) {
    state_.settings = {.worker_id = "w1", .incarnation = 5, .hostname = "host", .build = "b"};
    for (int i = 0; i < num_slots; ++i) {
      v1::Slot& slot = state_.settings.slots.emplace_back();
      slot.set_index(i);
      slot.set_device(v1::DEVICE_CPU);
    }
  }

  WorkerState& state() { return state_; }
  absl::Time now() const { return clock_.Now(); }

  void Feed(const Input& input) {
    Commands commands = Step(state_, input, clock_.Now());
    std::move(commands.begin(), commands.end(), std::back_inserter(commands_));
  }

  void Advance(absl::Duration step) {
    clock_.Advance(step);
    Feed(Woken{});
  }

  // Removes and returns the commands of one kind, in order.
  template <typename Kind>
  std::vector<Kind> Take() {
    std::vector<Kind> taken;
    Commands rest;
    for (Command& command : commands_) {
      if (Kind* const found = std::get_if<Kind>(&command)) {
        taken.push_back(std::move(*found));
      } else {
        rest.push_back(std::move(command));
      }
    }
    commands_ = std::move(rest);
    return taken;
  }

  // As Take, but expects exactly one command of that kind.
  template <typename Kind>
  Kind TakeOne() {
    std::vector<Kind> taken = Take<Kind>();
    EXPECT_EQ(taken.size(), 1u);
    return taken.empty() ? Kind() : std::move(taken.front());
  }

  // Removes all messages to the controller and returns those of one kind.
  std::vector<v1::WorkerMessage> TakeMessages(v1::WorkerMessage::ItemCase kind) {
    std::vector<v1::WorkerMessage> messages;
    for (SendToController& command : Take<SendToController>()) {
      if (command.message.item_case() == kind) {
        messages.push_back(std::move(command.message));
      }
    }
    return messages;
  }

  // As TakeMessages, but expects exactly one message of that kind.
  v1::WorkerMessage TakeMessage(v1::WorkerMessage::ItemCase kind) {
    std::vector<v1::WorkerMessage> messages = TakeMessages(kind);
    EXPECT_EQ(messages.size(), 1u);
    return messages.empty() ? v1::WorkerMessage() : std::move(messages.front());
  }

  // Removes all messages to the controller and returns the last status among them; empty if there is none.
  v1::AttemptStatus TakeStatus() {
    const std::vector<v1::WorkerMessage> messages = TakeMessages(v1::WorkerMessage::kStatus);
    return messages.empty() ? v1::AttemptStatus() : messages.back().status();
  }

  void FromControllerMessage(const v1::ControllerMessage& message) { Feed(FromController{message}); }

  // A heartbeat of the controller, in an open session.
  void Heartbeat() {
    v1::ControllerMessage message;
    message.mutable_heartbeat();
    FromControllerMessage(message);
  }

  void Connect(const std::vector<v1::Assignment>& all = {}, int64_t term = 1,
               const std::string& store_id = "store") {
    Feed(Connected{.data_address = "127.0.0.1"});
    v1::ControllerMessage message;
    message.mutable_welcome()->set_term(term);
    message.mutable_welcome()->set_store_id(store_id);
    message.mutable_welcome()->set_protocol(proto::kProtocol);
    message.mutable_welcome()->mutable_orphan_timeout()->set_seconds(600);
    message.mutable_welcome()->mutable_heartbeat_interval()->set_seconds(1);
    message.mutable_welcome()->mutable_assignments();
    for (const v1::Assignment& assignment : all) {
      *message.mutable_welcome()->mutable_assignments()->add_all() = assignment;
    }
    FromControllerMessage(message);
  }

  // Ends the session and opens another.
  void Reconnect(const std::vector<v1::Assignment>& all = {}, int64_t term = 1,
                 const std::string& store_id = "store") {
    Feed(Disconnected{});
    Connect(all, term, store_id);
  }

  void Assign(const std::vector<v1::Assignment>& all, const std::vector<AttemptKey>& forget = {}) {
    v1::ControllerMessage message;
    message.mutable_assignments();
    for (const v1::Assignment& assignment : all) {
      *message.mutable_assignments()->add_all() = assignment;
    }
    for (const AttemptKey& key : forget) {
      *message.mutable_assignments()->add_forget() = IdOf(key);
    }
    FromControllerMessage(message);
  }

  // A job with `ranks` local ranks on slots 0, 1, ...
  static v1::Assignment Job(const std::string& job, int ranks, int attempt = 1) {
    v1::Assignment assignment;
    assignment.mutable_id()->set_job_id(job);
    assignment.mutable_id()->set_attempt(attempt);
    assignment.set_desired(v1::DESIRED_RUN);
    for (int i = 0; i < ranks; ++i) {
      v1::RankSlot& slot = *assignment.add_slots();
      slot.set_rank(i);
      slot.set_worker("w1");
      slot.set_slot(i);
      v1::RankStart& start = *assignment.add_ranks();
      start.set_rank(i);
      start.set_slot(i);
    }
    return assignment;
  }

  // Connects if there is no session, and starts all ranks of the job.
  void StartJob(const v1::Assignment& assignment) {
    if (!state_.session.open) {
      Connect();
    }
    Assign({assignment});
    Checked checked{.attempt = KeyOf(assignment.id())};
    for (int i = 0; i < 7; ++i) {
      checked.program.Add("op " + std::to_string(i), "forward", 2);
    }
    Feed(checked);
    Feed(RanksRecorded{.attempt = checked.attempt});
    for (const v1::RankStart& start : assignment.ranks()) {
      Feed(RankSpawned{.rank = {KeyOf(assignment.id()), start.rank()},
                       .process = {.pid = 1000 + start.rank()}});
    }
    commands_.clear();
  }

  void Say(const AttemptKey& attempt, int rank, const v1::FromTrainer& message) {
    Feed(FromRank{.rank = {attempt, rank}, .message = message});
  }

  static PageSample Stepping(int64_t step) {
    return {.phase = v1::RANK_PHASE_STEPPING, .step = step, .instruction = 3};
  }

  void Exits(const AttemptKey& attempt, int rank, const Exit& exit, int64_t step = 37) {
    Feed(RankExited{{attempt, rank}, exit, Stepping(step)});
  }

 private:
  platform::FakeClock clock_;
  WorkerState state_;
  Commands commands_;
};

class CoreTest : public testing::Test {
 protected:
  CoreHarness core_;
};

}  // namespace tandem::worker
