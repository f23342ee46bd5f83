// SPDX-License-Identifier: Apache-2.0
#include "worker/controller_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "tests/platform/seeded_random.h"
#include "tests/worker/daemon_fixture.h"
#include "worker/mailbox.h"
#include "worker/report_queue.h"

namespace tandem::worker {
namespace {

// The end comes at another moment of a session's beginning each time, also before it is opened.
TEST(ControllerClientTest, MayEndAtAnyMomentOfItsBeginning) {
  constexpr uint64_t kSeed = 20261122;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  platform::SeededRandom random(kSeed);
  for (int i = 0; i < 400; ++i) {
    const std::chrono::microseconds pause(random.Next64() % 1000);
    ReportQueue reports(platform::SteadyClock(), {});
    ControllerClient client({.target = "unix:/nobody/listens/here"}, random, reports, [](const Input&) {});
    std::this_thread::sleep_for(pause);
  }
}

// The controller waits a few seconds for the first message of a stream, and a name service may take longer.
TEST_F(DaemonTest, NoStreamWaitsForTheNameServiceThatTellsTheDataAddress) {
  absl::Notification answer;
  Mailbox<Input> inputs;
  ReportQueue reports(platform::SteadyClock(), {});
  ControllerClient client({.target = controller_->address(),
                           .data_address = [&]() -> absl::StatusOr<std::string> {
                             answer.WaitForNotification();
                             return "192.0.2.7";
                           }},
                          platform::SystemRandom(), reports,
                          [&](Input input) { inputs.Put(std::move(input)); });
  EXPECT_FALSE(
      controller_->WaitFor([](const Seen& seen) { return seen.sessions > 0; }, absl::Milliseconds(500)));
  answer.Notify();
  const std::optional<Input> input = inputs.Take(absl::Seconds(20));
  ASSERT_TRUE(input && std::holds_alternative<Connected>(*input));
  EXPECT_EQ(std::get<Connected>(*input).data_address, "192.0.2.7");
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id("w1");
  client.Send(hello);
  EXPECT_TRUE(controller_->WaitFor([](const Seen& seen) { return seen.hellos.size() == 1; }));
}

}  // namespace
}  // namespace tandem::worker
