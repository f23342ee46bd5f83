// SPDX-License-Identifier: Apache-2.0
#include "platform/steady_condition.h"

#include <chrono>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tandem::platform {
namespace {

// Numbers that threads hand to each other.
class Box {
 public:
  void Put() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    ++items_;
    changed_.NotifyOne();
  }

  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    closed_ = true;
    changed_.NotifyAll();
  }

  // Waits with a predicate. false: nothing came within `limit`, or the box is closed.
  bool TakeWithin(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    changed_.AwaitFor(mu_, limit,
                      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return closed_ || items_ > 0; });
    return TakeOne();
  }

  // Waits in a loop. false: the box is closed.
  bool Take() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    while (!closed_ && items_ == 0) {
      changed_.Wait(mu_);
    }
    return TakeOne();
  }

 private:
  bool TakeOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (items_ == 0) {
      return false;
    }
    --items_;
    return true;
  }

  absl::Mutex mu_;
  SteadyCondition changed_;
  int items_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

TEST(SteadyCondition, AwaitForEndsAtItsLimit) {
  Box box;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(box.TakeWithin(absl::Milliseconds(20)));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
}

TEST(SteadyCondition, AwaitForWithoutTimeLooksOnce) {
  Box box;
  EXPECT_FALSE(box.TakeWithin(absl::ZeroDuration()));
  EXPECT_FALSE(box.TakeWithin(-absl::InfiniteDuration()));
  box.Put();
  EXPECT_TRUE(box.TakeWithin(absl::ZeroDuration()));
}

TEST(SteadyCondition, InfiniteLimitsWaitForANotification) {
  Box box;
  std::thread taker([&] { EXPECT_TRUE(box.TakeWithin(absl::InfiniteDuration())); });
  box.Put();
  taker.join();
}

TEST(SteadyCondition, WaitReturnsOnceNotified) {
  Box box;
  std::thread taker([&] { EXPECT_TRUE(box.Take()); });
  box.Put();
  taker.join();
}

TEST(SteadyCondition, EveryNotifyOneServesAWaiter) {
  Box box;
  std::vector<std::thread> takers;
  for (int i = 0; i < 8; ++i) {
    takers.emplace_back([&box, i] { EXPECT_TRUE(i % 2 == 0 ? box.Take() : box.TakeWithin(absl::Hours(3))); });
  }
  for (size_t i = 0; i < takers.size(); ++i) {
    box.Put();
  }
  for (std::thread& taker : takers) {
    taker.join();
  }
}

TEST(SteadyCondition, NotifyAllWakesEveryWaiter) {
  Box box;
  std::vector<std::thread> takers;
  for (int i = 0; i < 4; ++i) {
    takers.emplace_back(
        [&box, i] { EXPECT_FALSE(i % 2 == 0 ? box.Take() : box.TakeWithin(absl::InfiniteDuration())); });
  }
  box.Close();
  for (std::thread& taker : takers) {
    taker.join();
  }
}

// A limit counts from the call, not from the last notification: one that keeps coming does not prolong it.
TEST(SteadyCondition, NotificationsDoNotProlongALimit) {
  absl::Mutex mu;
  SteadyCondition changed;
  bool ended = false;
  std::thread notifier([&] {
    while (true) {
      const absl::MutexLock lock(&mu);
      if (ended) {
        return;
      }
      changed.NotifyAll();
    }
  });
  {
    const absl::MutexLock lock(&mu);
    EXPECT_FALSE(changed.AwaitFor(mu, absl::Milliseconds(20), [] { return false; }));
    ended = true;
  }
  notifier.join();
}

}  // namespace
}  // namespace tandem::platform
