// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "controller/engine.h"
#include "controller/store/store.h"
#include "tests/controller/job_builder.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/seeded_random.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {

// An engine with a store of its own and a clock that the test moves. What its outbox uses must outlive it.
class EngineTest : public ::testing::Test {
 protected:
  // Starts the engine with the stored state. Unless `fatal` is set, the test fails if the store does.
  void Start(Engine::Outbox outbox) {
    if (!outbox.fatal) {
      outbox.fatal = [](const absl::Status& status) { ADD_FAILURE() << status; };
    }
    engine_ = std::make_unique<Engine>(*store_, clock_, store_->Load().value(), std::move(outbox));
    engine_->Start();
  }
  Engine::Reply ReplyTo(Input input) {
    Engine::Reply out;
    absl::Notification answered;
    engine_->Post(std::move(input), [&](Engine::Reply reply) {
      out = std::move(reply);
      answered.Notify();
    });
    answered.WaitForNotification();
    return out;
  }
  absl::Status Submitted(const std::string& name) { return ReplyTo(SubmitOf(name, 1)).status; }

  platform::TemporaryFolder folder_;
  const std::string directory_ = folder_.path() + "/state";
  platform::SeededRandom random_{1};
  platform::FakeClock clock_;
  std::unique_ptr<Store> store_ = Store::Open(directory_, random_).value();
  std::unique_ptr<Engine> engine_;
};

}  // namespace tandem::controller
