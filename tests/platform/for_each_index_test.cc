// SPDX-License-Identifier: Apache-2.0
#include "platform/for_each_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tests/platform/no_threads.h"

namespace tandem::platform {
namespace {

TEST(ForEachIndexTest, EveryIndexHasOneCall) {
  for (const int threads : {1, 2, 8}) {
    for (const size_t count : {0, 1, 2, 8, 1000}) {
      std::vector<std::atomic<int>> calls(count);
      ForEachIndex(count, threads, [&](size_t index) { ++calls[index]; });
      for (const std::atomic<int>& own : calls) {
        EXPECT_EQ(own, 1);
      }
    }
  }
}

TEST(ForEachIndexTest, ThreadsStayWithinTheLimit) {
  for (const int threads : {1, 3}) {
    absl::Mutex mu;
    std::set<std::thread::id> seen;
    ForEachIndex(100, threads, [&](size_t) {
      const absl::MutexLock lock(&mu);
      seen.insert(std::this_thread::get_id());
    });
    EXPECT_LE(seen.size(), static_cast<size_t>(threads));
  }
}

TEST(ForEachIndexTest, WithoutThreadsTheCallerWorks) {
  const NoThreads none;
  std::vector<std::thread::id> threads(20);
  ForEachIndex(threads.size(), 8, [&](size_t index) { threads[index] = std::this_thread::get_id(); });
  EXPECT_THAT(threads, testing::Each(std::this_thread::get_id()));
}

TEST(ForEachIndexTest, EachThreadHasAnIndex) {
  constexpr int kThreads = 8;
  absl::Mutex mu;
  int waiting = 0;
  ForEachIndex(kThreads, kThreads, [&](size_t) {
    const absl::MutexLock lock(&mu);
    ++waiting;
    const auto all_wait = [&] { return waiting == kThreads; };
    EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&all_wait), absl::Seconds(10)));
  });
}

TEST(ForEachIndexTest, TheErrorOfTheLowestIndexIsThrown) {
  for (int round = 0; round < 100; ++round) {
    try {
      ForEachIndex(1000, 8, [](size_t index) {
        if (index >= 20) {
          throw std::runtime_error(std::to_string(index));
        }
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "20");
    }
  }
}

}  // namespace
}  // namespace tandem::platform
