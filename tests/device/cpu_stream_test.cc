// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <future>
#include <iostream>
#include <latch>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/stream.h"

namespace tandem::device {
namespace {

TEST(CpuStreamTest, WorkRunsInOrder) {
  const auto stream = MakeCpuStream("compute", StreamError());
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    stream->Enqueue([&order, i] { order.push_back(i); });
  }
  stream->Synchronize();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(CpuStreamTest, ThreadHasNameAndNoGradients) {
  const auto stream = MakeCpuStream("a-long-name-of-a-stream", StreamError());
  char name[16] = {};
  bool requires_grad = true;
  int threads = 0;
  const at::Tensor weight = at::ones({3}).requires_grad_();
  stream->Enqueue([&] {
    pthread_getname_np(pthread_self(), name, sizeof(name));
    requires_grad = weight.mul(2).requires_grad();
    threads = at::get_num_threads();
  });
  stream->Synchronize();
  EXPECT_EQ(std::string(name), "a-long-name-of-");
  EXPECT_FALSE(requires_grad);
  EXPECT_EQ(threads, 1);
}

TEST(CpuStreamTest, WaitOrdersAcrossStreams) {
  const auto producer = MakeCpuStream("producer", StreamError());
  const auto consumer = MakeCpuStream("consumer", StreamError());
  std::latch gate(1);
  int value = 0;
  int seen = 0;
  producer->Enqueue([&] { gate.wait(); });
  producer->Enqueue([&] { value = 7; });
  consumer->Wait(producer->Record());
  consumer->Enqueue([&] { seen = value; });
  gate.count_down();
  consumer->Synchronize();
  EXPECT_EQ(seen, 7);
}

TEST(CpuStreamTest, ADefaultEventIsReached) {
  const auto stream = MakeCpuStream("compute", StreamError());
  bool ran = false;
  stream->Wait(Event());
  stream->Enqueue([&] { ran = true; });
  stream->Synchronize();
  EXPECT_TRUE(ran);
}

TEST(CpuStreamTest, FirstErrorSkipsAllQueuedWork) {
  const StreamError error;
  const auto a = MakeCpuStream("a", error);
  const auto b = MakeCpuStream("b", error);
  std::latch gate(1);
  std::atomic<int> ran = 0;
  a->Enqueue([&] { gate.wait(); });
  a->Enqueue([] { throw std::runtime_error("first"); });
  a->Enqueue([&] { ++ran; });
  b->Wait(a->Record());
  b->Enqueue([&] { ++ran; });
  b->Enqueue([] { throw std::runtime_error("second"); });
  gate.count_down();
  const auto message = [](Stream& stream) {
    try {
      stream.Synchronize();
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("nothing thrown");
  };
  EXPECT_EQ(message(*b), "first");
  EXPECT_EQ(message(*a), "first");
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(error.is_set());
  EXPECT_THROW(error.RethrowIfSet(), std::runtime_error);
}

TEST(CpuStreamTest, StreamsWithOtherErrorsContinue) {
  const auto a = MakeCpuStream("a", StreamError());
  const auto b = MakeCpuStream("b", StreamError());
  a->Enqueue([] { throw std::runtime_error("only a"); });
  EXPECT_THROW(a->Synchronize(), std::runtime_error);
  bool ran = false;
  b->Enqueue([&] { ran = true; });
  EXPECT_NO_THROW(b->Synchronize());
  EXPECT_TRUE(ran);
}

TEST(CpuStreamTest, HostWaitsForAnEventAlone) {
  const auto stream = MakeCpuStream("compute", StreamError());
  std::promise<void> go;
  bool first = false;
  bool second = false;
  stream->Enqueue([&] { first = true; });
  const Event end = stream->Record();
  stream->Enqueue([&, wait = go.get_future().share()] {
    wait.wait();
    second = true;
  });
  stream->Synchronize(end);
  EXPECT_TRUE(first);
  EXPECT_TRUE(end.IsReached());
  EXPECT_FALSE(second);
  stream->Synchronize(Event());
  go.set_value();
  stream->Synchronize();
  EXPECT_TRUE(second);
}

TEST(CpuStreamTest, AnErrorEndsTheWaitForAnEvent) {
  StreamError error;
  const auto stream = MakeCpuStream("compute", error);
  std::promise<void> go;
  stream->Enqueue([wait = go.get_future().share()] { wait.wait(); });
  const Event end = stream->Record();
  error.Set(std::make_exception_ptr(std::runtime_error("from outside")));
  EXPECT_THROW(stream->Synchronize(end), std::runtime_error);
  go.set_value();
}

TEST(CpuStreamTest, EventsThatNobodyRefersToAreUsedAgain) {
  const auto a = MakeCpuStream("a", StreamError());
  const auto b = MakeCpuStream("b", StreamError());
  std::set<const Event::State*> states;
  int sum = 0;
  int expected = 0;
  for (int step = 0; step < 500; ++step) {
    a->Enqueue([&sum, step] { sum += step; });
    const Event there = a->Record();
    b->Wait(there);
    b->Enqueue([&sum] { sum *= 3; });
    const Event back = b->Record();
    a->Wait(back);
    expected = static_cast<int>((static_cast<int64_t>(expected + step) * 3) % 1000);
    a->Enqueue([&sum] { sum %= 1000; });
    states.insert(there.state());
    states.insert(back.state());
    if (step % 4 == 3) {
      a->Synchronize();
    }
  }
  a->Synchronize();
  EXPECT_EQ(sum, expected);
  EXPECT_LE(states.size(), 40u) << "of 1000 that were recorded";
}

TEST(CpuStreamTest, AnEventOutlivesItsStream) {
  auto stream = MakeCpuStream("gone", StreamError());
  const Event end = stream->Record();
  const Event copy = end;
  stream.reset();
  EXPECT_TRUE(copy.IsReached());
}

TEST(CpuStreamTest, DestructionRunsWhatIsQueued) {
  int ran = 0;
  {
    const auto stream = MakeCpuStream("compute", StreamError());
    for (int i = 0; i < 100; ++i) {
      stream->Enqueue([&] { ++ran; });
    }
  }
  EXPECT_EQ(ran, 100);
}

TEST(CpuStreamTest, FinishedWorkReleasesItsCaptures) {
  const auto stream = MakeCpuStream("compute", StreamError());
  std::latch gate(1);
  const auto held = std::make_shared<int>(1);
  long count = 0;
  stream->Enqueue([&] { gate.wait(); });
  stream->Enqueue([held] {});
  stream->Enqueue([&] { count = held.use_count(); });
  gate.count_down();
  stream->Synchronize();
  EXPECT_EQ(count, 1);
}

TEST(CpuStreamTest, AnIdleStreamUsesNoProcessorTime) {
  const auto stream = MakeCpuStream("idle", StreamError());
  clockid_t clock = 0;
  stream->Enqueue([&] { pthread_getcpuclockid(pthread_self(), &clock); });
  stream->Synchronize();
  const auto nanoseconds = [&] {
    timespec time = {};
    clock_gettime(clock, &time);
    return time.tv_sec * 1'000'000'000L + time.tv_nsec;
  };
  const long before = nanoseconds();
  // Something that takes a while on this thread.
  double sum = 0;
  for (int i = 0; i < 20; ++i) {
    sum += at::ones({1'000'000}).sum().item<double>();
  }
  EXPECT_EQ(sum, 2e7);
  EXPECT_LT(nanoseconds() - before, 2'000'000);
}

// Random work on random streams, each piece ordered after random earlier pieces by events: every piece must
// see the finished results of all that it waited for.
TEST(CpuStreamTest, RandomGraphsOfWaitsAreKept) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<std::unique_ptr<Stream>> streams;
    const StreamError error;
    for (int i = 0; i < 4; ++i) {
      streams.push_back(MakeCpuStream("stream" + std::to_string(i), error));
    }
    constexpr int kPieces = 500;
    struct Piece {
      size_t stream = 0;
      Event done;
    };
    std::vector<Piece> pieces;
    // Plain bools on purpose: only the order that events give makes this free of races (TSan sees it).
    const auto finished = std::make_unique<bool[]>(kPieces);
    std::atomic<int> violations = 0;
    for (int i = 0; i < kPieces; ++i) {
      const size_t stream = random() % streams.size();
      std::vector<int> after;
      for (int waits = static_cast<int>(random() % 3); waits > 0 && i > 0; --waits) {
        const int earlier = static_cast<int>(random() % static_cast<uint64_t>(i));
        streams[stream]->Wait(pieces[static_cast<size_t>(earlier)].done);
        after.push_back(earlier);
      }
      streams[stream]->Enqueue([&finished, &violations, after, i] {
        for (const int earlier : after) {
          violations += finished[static_cast<size_t>(earlier)] ? 0 : 1;
        }
        finished[static_cast<size_t>(i)] = true;
      });
      pieces.push_back({stream, streams[stream]->Record()});
    }
    for (const auto& stream : streams) {
      stream->Synchronize();
    }
    ASSERT_EQ(violations, 0) << "seed " << seed << " repeat " << repeat;
    for (int i = 0; i < kPieces; ++i) {
      ASSERT_TRUE(finished[static_cast<size_t>(i)]);
    }
  }
}

}  // namespace
}  // namespace tandem::device
