// SPDX-License-Identifier: Apache-2.0
#include "comm/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "tests/comm/run_thread_ranks.h"
#include "tests/comm/thread_communicator.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(5);

// Fails when a test asks for it.
class PendingCommunicator final : public Communicator {
 public:
  const std::string& name() const override { return name_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void AllGather(Memory, Memory) override {}
  void AllToAll(Memory, Memory) override {}
  void AllToAllRows(Memory, const std::vector<int64_t>&, Memory, const std::vector<int64_t>&,
                    int64_t) override {}
  void Gather(Memory, Memory) override {}
  void Send(Memory) override {}
  void Receive(Memory) override {}
  void Abort() override {}
  absl::Status RegisterWindow(std::shared_ptr<const device::Region>) override { return absl::OkStatus(); }
  void CheckPending() override {
    ++looks;
    if (!failed) {
      return;
    }
    reported = true;
    throw CommError("group pending rank 0 AllGather: failed");
  }
  uint64_t num_collectives() const override { return 0; }
  uint64_t num_ended() const override { return 0; }

  std::atomic<bool> failed{false};
  std::atomic<bool> reported{false};
  std::atomic<int> looks{0};

 private:
  const std::string name_ = "pending";
};

std::string TextOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    return e.what();
  }
}

TEST(WatchTest, ARankThatIsGoneIsReported) {
  auto ranks = MakeThreadCommunicators("heartbeat", 2);
  std::promise<std::string> reported;
  Watchdog watch(*ranks[0], {}, kInterval,
                 [&](const std::exception_ptr& e) { reported.set_value(TextOf(e)); });
  std::future<std::string> text = reported.get_future();
  ranks[1].reset();
  EXPECT_EQ(text.get(), "group heartbeat rank 0 AllGather: rank 1 is gone");
}

TEST(WatchTest, ACollectiveThatFailsIsReported) {
  auto ranks = MakeThreadCommunicators("heartbeat", 1);
  PendingCommunicator pending;
  std::promise<std::string> reported;
  Watchdog watch(*ranks[0], {&pending}, kInterval,
                 [&](const std::exception_ptr& e) { reported.set_value(TextOf(e)); });
  pending.failed = true;
  EXPECT_EQ(reported.get_future().get(), "group pending rank 0 AllGather: failed");
}

TEST(WatchTest, AllCommunicatorsAreCheckedBeforeReporting) {
  auto ranks = MakeThreadCommunicators("heartbeat", 1);
  PendingCommunicator failing;
  PendingCommunicator behind;
  failing.failed = true;
  std::promise<int> looks;
  Watchdog watch(*ranks[0], {&failing, &behind}, kInterval,
                 [&](const std::exception_ptr&) { looks.set_value(behind.looks); });
  EXPECT_EQ(looks.get_future().get(), 1);
}

// A death breaks the heartbeat and the collectives that are pending, each noticed by a thread of its own.
TEST(WatchTest, WhatBothThreadsNoticeIsReportedOnce) {
  auto ranks = MakeThreadCommunicators("heartbeat", 2);
  PendingCommunicator pending;
  std::atomic<int> reported{0};
  {
    Watchdog watch(*ranks[0], {&pending}, kInterval, [&](const std::exception_ptr&) {
      if (++reported > 1) {
        return;
      }
      pending.failed = true;
      while (!pending.reported) {
        std::this_thread::yield();
      }
    });
    ranks[1].reset();
    while (!pending.reported) {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(reported, 1);
}

TEST(WatchTest, LeavingRanksReportNothing) {
  auto heartbeats = MakeThreadCommunicators("heartbeat", 3);
  RunThreadRanks(3, [&](int rank) {
    Watchdog watch(*heartbeats[static_cast<size_t>(rank)], {}, kInterval,
                   [](const std::exception_ptr& error) { ADD_FAILURE() << TextOf(error); });
    if (rank == 0) {
      EXPECT_TRUE(watch.Leave(absl::Seconds(30)));
    }
  });
}

}  // namespace
}  // namespace tandem::comm
