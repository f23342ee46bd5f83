// SPDX-License-Identifier: Apache-2.0
// Whether what tests/tsan/visible_mutex.cc puts in place of Abseil's locks excludes, wakes and gives up as
// theirs do. ThreadSanitizer fails these tests where it does not see the order that a lock makes.
#include <gtest/gtest.h>

#include <deque>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace tandem {
namespace {

TEST(VisibleMutexTest, AwaitWakesWhenItsConditionBecomesTrue) {
  constexpr int kTakers = 4;
  constexpr int kItems = 1000;  // of each
  absl::Mutex mu;
  std::deque<int> items;
  int taken = 0;
  absl::BlockingCounter ended(kTakers);
  absl::Notification leave;
  std::vector<std::thread> takers;
  for (int i = 0; i < kTakers; ++i) {
    takers.emplace_back([&] {
      for (int k = 0; k < kItems; ++k) {
        const auto ready = [&] { return !items.empty(); };
        const absl::MutexLock lock(&mu);
        mu.Await(absl::Condition(&ready));
        items.pop_front();
        ++taken;
      }
      ended.DecrementCount();
      leave.WaitForNotification();
    });
  }
  for (int k = 0; k < kTakers * kItems; ++k) {
    const absl::MutexLock lock(&mu);
    items.push_back(k);
  }
  ended.Wait();
  leave.Notify();
  for (std::thread& taker : takers) {
    taker.join();
  }
  EXPECT_EQ(taken, kTakers * kItems);
}

// What a thread has changed before it waits itself, others wait for.
TEST(VisibleMutexTest, ThreadsThatAwaitEachOtherTakeTurns) {
  constexpr int kThreads = 3;
  constexpr int kTurns = 300;
  absl::Mutex mu;
  int turn = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto mine = [&] { return turn % kThreads == i || turn == kThreads * kTurns; };
      const absl::MutexLock lock(&mu);
      for (int k = 0; k < kTurns; ++k) {
        mu.Await(absl::Condition(&mine));
        ++turn;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(turn, kThreads * kTurns);
}

TEST(VisibleMutexTest, CondVarsWakeAndReadersShare) {
  constexpr int kThreads = 3;
  constexpr int kTurns = 300;
  absl::Mutex mu;
  absl::CondVar changed;
  int turn = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < kTurns; ++k) {
        const absl::MutexLock lock(&mu);
        while (turn % kThreads != i) {
          changed.Wait(&mu);
        }
        ++turn;
        changed.SignalAll();
      }
    });
  }
  for (int last = 0; last < kThreads * kTurns;) {
    const absl::ReaderMutexLock lock(&mu);
    EXPECT_GE(turn, last);
    last = turn;
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(VisibleMutexTest, AwaitHoldsTheLockAfterItsLimit) {
  absl::Mutex mu;
  const bool never = false;
  const absl::MutexLock lock(&mu);
  EXPECT_FALSE(mu.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(20)));
  std::thread([&] { EXPECT_FALSE(mu.TryLock()); }).join();
}

}  // namespace
}  // namespace tandem
