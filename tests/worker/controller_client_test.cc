// SPDX-License-Identifier: Apache-2.0
#include "worker/controller_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "platform/clock.h"
#include "tests/platform/seeded_random.h"
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

}  // namespace
}  // namespace tandem::worker
