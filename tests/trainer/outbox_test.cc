// SPDX-License-Identifier: Apache-2.0
#include "trainer/outbox.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace tandem::trainer {
namespace {

class OutboxTest : public testing::Test {
 protected:
  OutboxTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    trainer_ = std::make_unique<link::Channel>(ends[0]);
    daemon_ = std::make_unique<link::Channel>(ends[1]);
  }

  v1::FromTrainer Receive() {
    v1::FromTrainer message;
    const absl::StatusOr<bool> received = daemon_->Receive(message);
    EXPECT_TRUE(received.ok() && *received);
    return message;
  }

  static v1::FromTrainer Report(int64_t step, int norms) {
    v1::FromTrainer message;
    message.mutable_report()->set_step(step);
    for (int i = 0; i < norms; ++i) {
      message.mutable_report()->mutable_norms()->add_weight(1);
    }
    return message;
  }

  static v1::FromTrainer Done(uint64_t id) {
    v1::FromTrainer message;
    message.set_request_done(id);
    return message;
  }

  std::unique_ptr<link::Channel> trainer_;
  std::unique_ptr<link::Channel> daemon_;
};

TEST_F(OutboxTest, SendsInOrder) {
  Outbox outbox(*trainer_);
  outbox.Push(Report(1, 2));
  outbox.Push(Done(7));
  EXPECT_EQ(Receive().report().step(), 1);
  EXPECT_EQ(Receive().request_done(), 7u);
  EXPECT_TRUE(outbox.Flush(absl::InfiniteDuration()));
}

// The daemon reads nothing: what its socket does not take waits here, and loses its norms beyond the limit.
TEST_F(OutboxTest, StalledDaemonCostsOnlyNorms) {
  constexpr int kNorms = 100'000;  // 800 kB: more than a socket buffer takes
  Outbox outbox(*trainer_, /*max_bytes=*/2'000'000);
  outbox.Push(Report(1, 10));
  outbox.Push(Done(1));
  for (int64_t step = 2; step <= 50; ++step) {
    outbox.Push(Report(step, kNorms));
  }
  outbox.Push(Done(2));
  int64_t reports = 0;
  int64_t last_step = 0;
  double dropped_reports = 0;
  double dropped_norms = 0;
  bool done[3] = {};
  while (!done[2]) {
    const v1::FromTrainer message = Receive();
    if (message.has_report()) {
      ++reports;
      EXPECT_GT(message.report().step(), last_step);
      last_step = message.report().step();
      const auto& scalars = message.report().scalars();
      if (scalars.count("dropped_reports") > 0) {
        dropped_reports = scalars.at("dropped_reports");
        dropped_norms = scalars.at("dropped_norms");
      }
    } else {
      done[message.request_done()] = true;
    }
  }
  EXPECT_TRUE(done[1]);
  EXPECT_EQ(last_step, 50);
  EXPECT_EQ(reports + static_cast<int64_t>(dropped_reports), 50);
  EXPECT_GE(dropped_norms, 40);
}

TEST_F(OutboxTest, FlushWaitsForWhatIsBeingSent) {
  Outbox outbox(*trainer_);
  outbox.Push(Report(1, 100'000));  // 800 kB: more than a socket buffer takes
  EXPECT_FALSE(outbox.Flush(absl::Milliseconds(50))) << "the daemon has not read it";
  EXPECT_EQ(Receive().report().step(), 1);
  EXPECT_TRUE(outbox.Flush(absl::InfiniteDuration()));
}

TEST_F(OutboxTest, ADaemonThatIsGoneBlocksNobody) {
  Outbox outbox(*trainer_);
  daemon_.reset();
  for (int i = 0; i < 100; ++i) {
    outbox.Push(Report(i, 10));
  }
  EXPECT_TRUE(outbox.Flush(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace tandem::trainer
