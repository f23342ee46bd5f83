// SPDX-License-Identifier: Apache-2.0
#include "worker/controller_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <variant>

#include "platform/clock.h"
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

// Controllers end a session that says nothing for some seconds, and a name service may take longer.
TEST_F(DaemonTest, ASessionBeginsWithTheMachinesAddress) {
  std::atomic<bool> early{false};
  Mailbox<std::string> said;
  const auto slow = [&](const std::string&) -> absl::StatusOr<std::string> {
    early = controller_->WaitFor([](const Seen& seen) { return seen.sessions > 0; }, absl::Milliseconds(300));
    return "10.0.0.7";
  };
  platform::SeededRandom random(1);
  ReportQueue reports(platform::SteadyClock(), {});
  ControllerClient client({.target = controller_->address(), .local_address = slow}, random, reports,
                          [&](const Input& input) {
                            if (const auto* const connected = std::get_if<Connected>(&input)) {
                              said.Put(connected->data_address);
                            }
                          });
  EXPECT_EQ(said.Take(absl::Seconds(10)), "10.0.0.7");
  EXPECT_FALSE(early);
}

}  // namespace
}  // namespace tandem::worker
