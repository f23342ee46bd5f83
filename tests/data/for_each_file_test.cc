// SPDX-License-Identifier: Apache-2.0
#include "data/for_each_file.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::data {
namespace {

TEST(ForEachFileTest, EveryIndexHasOneCall) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, kMostConcurrentFiles, size_t{1000}}) {
    std::vector<std::atomic<int>> calls(count);
    ForEachFile(count, [&](size_t index) { ++calls[index]; });
    for (const std::atomic<int>& own : calls) {
      EXPECT_EQ(own, 1);
    }
  }
}

TEST(ForEachFileTest, FilesAreWaitedForTogether) {
  absl::Mutex mu;
  size_t waiting = 0;
  ForEachFile(kMostConcurrentFiles, [&](size_t) {
    const absl::MutexLock lock(&mu);
    ++waiting;
    const auto all_wait = [&] { return waiting == kMostConcurrentFiles; };
    EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&all_wait), absl::Seconds(10)));
  });
}

TEST(ForEachFileTest, TheErrorOfTheLowestIndexIsThrown) {
  for (int round = 0; round < 100; ++round) {
    try {
      ForEachFile(1000, [](size_t index) {
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
}  // namespace tandem::data
