// SPDX-License-Identifier: Apache-2.0
#include "tests/device/seeded_scheduler.h"

#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tandem::device {
namespace {

TEST(SeededSchedulerTest, NothingRunsBeforeTheHostWaits) {
  SeededScheduler scheduler(1, 1);
  const auto stream = scheduler.streams(0).MakeStream("compute", StreamError());
  int ran = 0;
  stream->Enqueue([&] { ++ran; });
  EXPECT_EQ(ran, 0);
  stream->Synchronize();
  EXPECT_EQ(ran, 1);
}

// Two streams, three pieces each; what ran, as letters.
std::pair<std::string, uint64_t> TwoStreams(uint64_t seed) {
  SeededScheduler scheduler(1, seed);
  const auto a = scheduler.streams(0).MakeStream("a", StreamError());
  const auto b = scheduler.streams(0).MakeStream("b", StreamError());
  std::string order;
  for (const char c : {'a', 'b', 'c'}) {
    a->Enqueue([&order, c] { order += c; });
  }
  for (const char c : {'x', 'y', 'z'}) {
    b->Enqueue([&order, c] { order += c; });
  }
  a->Synchronize();
  b->Synchronize();
  return {order, scheduler.order_digest()};
}

TEST(SeededSchedulerTest, EveryOrderThatTheStreamsAllowComes) {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    orders.insert(TwoStreams(seed).first);
  }
  EXPECT_EQ(orders.size(), 20u);  // 6 over 3
}

TEST(SeededSchedulerTest, TheSeedAloneDecides) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(TwoStreams(seed + i), TwoStreams(seed + i));
  }
}

TEST(SeededSchedulerTest, WaitsOrder) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SeededScheduler scheduler(1, seed);
    const auto producer = scheduler.streams(0).MakeStream("producer", StreamError());
    const auto consumer = scheduler.streams(0).MakeStream("consumer", StreamError());
    int value = 0;
    int seen = 0;
    producer->Enqueue([&] { value = 7; });
    consumer->Wait(producer->Record());
    consumer->Wait(Event());
    consumer->Enqueue([&] { seen = value; });
    consumer->Synchronize();
    ASSERT_EQ(seen, 7) << seed;
  }
}

TEST(SeededSchedulerTest, OtherPiecesRunWhileOneWaits) {
  SeededScheduler scheduler(1, 3);
  const auto a = scheduler.streams(0).MakeStream("a", StreamError());
  const auto b = scheduler.streams(0).MakeStream("b", StreamError());
  std::string order;
  bool go = false;
  a->Enqueue([&] {
    scheduler.WaitUntil([&] { return go; });
    order += 'a';
  });
  b->Enqueue([&] {
    order += 'b';
    go = true;
  });
  a->Synchronize();
  EXPECT_EQ(order, "ba");
}

TEST(SeededSchedulerTest, DeadlockNamesTheWaiters) {
  SeededScheduler scheduler(1, 1);
  const auto stream = scheduler.streams(0).MakeStream("gather", StreamError());
  stream->Enqueue([&] { scheduler.WaitUntil([] { return false; }); });
  try {
    stream->Synchronize();
    FAIL() << "it came to an end";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no stream can go on: rank 0 gather waits for its peers");
  }
}

TEST(SeededSchedulerTest, AnErrorSkipsTheRankAndIsThrown) {
  SeededScheduler scheduler(1, 1);
  const StreamError error;
  const auto a = scheduler.streams(0).MakeStream("a", error);
  const auto b = scheduler.streams(0).MakeStream("b", error);
  bool ran = false;
  a->Enqueue([] { throw std::runtime_error("first"); });
  b->Wait(a->Record());
  b->Enqueue([&] { ran = true; });
  EXPECT_THROW(b->Synchronize(), std::runtime_error);
  EXPECT_FALSE(ran);
}

// As a host does that issues one run ahead: it goes on when an event is reached, and what is left runs beside
// what comes.
TEST(SeededSchedulerTest, UnawaitedWorkMayRunLater) {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededScheduler scheduler(1, seed);
    const auto a = scheduler.streams(0).MakeStream("a", StreamError());
    const auto b = scheduler.streams(0).MakeStream("b", StreamError());
    std::string order;
    a->Enqueue([&] { order += 'a'; });
    const Event first = a->Record();
    b->Enqueue([&] { order += 'x'; });
    b->Enqueue([&] { order += 'y'; });
    a->Synchronize(first);
    EXPECT_NE(order.find('a'), std::string::npos);
    const size_t ran = order.size();
    EXPECT_EQ(order.back(), 'a') << "the round ends where nobody waits any more";
    a->Enqueue([&] { order += 'b'; });
    a->Synchronize(first);  // was reached before: starts nothing
    EXPECT_EQ(order.size(), ran);
    a->Synchronize();
    EXPECT_EQ(order.size(), 4u);
    orders.insert(order);
  }
  EXPECT_EQ(orders, (std::set<std::string>{"abxy", "axby", "axyb", "xaby", "xayb", "xyab"}));
}

TEST(SeededSchedulerTest, RoundsEndWithEveryRanksEvent) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SeededScheduler scheduler(2, seed);
    int arrived = 0;
    std::vector<std::jthread> hosts;
    for (int rank = 0; rank < 2; ++rank) {
      hosts.emplace_back([&scheduler, &arrived, rank] {
        const auto stream = scheduler.streams(rank).MakeStream("compute", StreamError());
        std::vector<Event> ends;
        for (int run = 0; run < 10; ++run) {  // with two in flight
          if (run >= 2) {
            stream->Synchronize(ends[run - 2]);
          }
          stream->Enqueue([&scheduler, &arrived, run] {
            ++arrived;
            scheduler.WaitUntil([&arrived, run] { return arrived >= 2 * (run + 1); });
          });
          ends.push_back(stream->Record());
        }
        stream->Synchronize();
      });
    }
    hosts.clear();
    EXPECT_EQ(arrived, 20);
  }
}

TEST(SeededSchedulerTest, StreamsEndWithAPieceInTheMiddle) {
  int began = 0;
  int ended = 0;
  bool rest = false;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SeededScheduler scheduler(1, seed);
    const StreamError error;
    const auto a = scheduler.streams(0).MakeStream("a", error);
    const auto b = scheduler.streams(0).MakeStream("b", error);
    a->Enqueue([&] {
      ++began;
      const std::unique_ptr<int, void (*)(int*)> at_end(&ended, [](int* count) { ++*count; });
      scheduler.WaitUntil([] { return false; });
    });
    a->Enqueue([&] { rest = true; });
    b->Enqueue([] {});
    b->Synchronize(b->Record());
  }
  EXPECT_GT(began, 0);
  EXPECT_EQ(ended, began) << "what a piece holds is let go";
  EXPECT_FALSE(rest);
}

TEST(SeededSchedulerTest, GoneRankIsNotAwaited) {
  SeededScheduler scheduler(2, 1);
  auto gone = scheduler.streams(1).MakeStream("compute", StreamError());
  const auto stream = scheduler.streams(0).MakeStream("compute", StreamError());
  gone.reset();
  bool ran = false;
  stream->Enqueue([&] { ran = true; });
  stream->Synchronize();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace tandem::device
