// SPDX-License-Identifier: Apache-2.0
#include "link/channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tandem/v1/trainer.pb.h"

namespace tandem::link {
namespace {

using testing::HasSubstr;

v1::FromTrainer Set(const std::string& key, const std::string& value) {
  v1::FromTrainer message;
  message.mutable_set()->set_key(key);
  message.mutable_set()->set_value(value);
  return message;
}

// Two channels over a real socket pair.
class ChannelTest : public testing::Test {
 protected:
  ChannelTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    a_.emplace(ends_[0]);
    b_.emplace(ends_[1]);
  }

  int ends_[2];
  std::optional<Channel> a_;
  std::optional<Channel> b_;
};

TEST_F(ChannelTest, MessagesArriveInOrderAndWhole) {
  std::thread sender([&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(a_->Send(Set(std::to_string(i), std::string(static_cast<size_t>(i) * 1000, 'x'))).ok());
    }
  });
  for (int i = 0; i < 100; ++i) {
    v1::FromTrainer message;
    ASSERT_TRUE(*b_->Receive(message));
    EXPECT_EQ(message.set().key(), std::to_string(i));
    EXPECT_EQ(message.set().value().size(), static_cast<size_t>(i) * 1000);
  }
  sender.join();
}

TEST_F(ChannelTest, AnEmptyMessageIsAFrameToo) {
  ASSERT_TRUE(a_->Send(v1::FromTrainer()).ok());
  v1::FromTrainer message = Set("old", "content");
  ASSERT_TRUE(*b_->Receive(message));
  EXPECT_EQ(message.item_case(), v1::FromTrainer::ITEM_NOT_SET);
}

TEST_F(ChannelTest, SendersOnManyThreadsTearNoFrame) {
  constexpr int kThreads = 4;
  constexpr int kMessages = 50;
  std::vector<std::thread> senders;
  for (int t = 0; t < kThreads; ++t) {
    senders.emplace_back([&, t] {
      for (int i = 0; i < kMessages; ++i) {
        EXPECT_TRUE(a_->Send(Set(std::to_string(t * kMessages + i), std::string(100'000, 'a' + t))).ok());
      }
    });
  }
  std::set<std::string> keys;
  for (int i = 0; i < kThreads * kMessages; ++i) {
    v1::FromTrainer message;
    ASSERT_TRUE(*b_->Receive(message));
    keys.insert(message.set().key());
    EXPECT_EQ(message.set().value().find_first_not_of(message.set().value()[0]), std::string::npos);
  }
  EXPECT_EQ(keys.size(), static_cast<size_t>(kThreads * kMessages));
  for (std::thread& sender : senders) {
    sender.join();
  }
}

TEST_F(ChannelTest, ClosedPeerIsAnEndBetweenFrames) {
  ASSERT_TRUE(a_->Send(Set("last", "words")).ok());
  a_.reset();
  v1::FromTrainer message;
  EXPECT_TRUE(*b_->Receive(message));
  EXPECT_FALSE(*b_->Receive(message));
  EXPECT_TRUE(absl::IsUnavailable(b_->Send(message)));
}

TEST_F(ChannelTest, DeadPeerWithUnreadBytesIsAnEnd) {
  ASSERT_TRUE(b_->Send(Set("never", "read")).ok());
  a_.reset();  // the kernel resets the connection
  v1::FromTrainer message;
  const absl::StatusOr<bool> got = b_->Receive(message);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FALSE(*got);
}

TEST_F(ChannelTest, ATornFrameIsAnError) {
  const char part[] = {100, 0, 0, 0, 'x', 'y'};
  ASSERT_EQ(send(ends_[0], part, sizeof(part), 0), static_cast<ssize_t>(sizeof(part)));
  a_.reset();
  v1::FromTrainer message;
  const absl::Status status = b_->Receive(message).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("frame of 100 bytes"));
}

TEST_F(ChannelTest, ATornLengthIsAnError) {
  ASSERT_EQ(send(ends_[0], "\1\0", 2, 0), 2);
  a_.reset();
  v1::FromTrainer message;
  EXPECT_TRUE(absl::IsDataLoss(b_->Receive(message).status()));
}

TEST_F(ChannelTest, AnOversizedFrameIsRefusedBeforeAnyAllocation) {
  const unsigned char length[] = {0xff, 0xff, 0xff, 0xff};
  ASSERT_EQ(send(ends_[0], length, sizeof(length), 0), 4);
  v1::FromTrainer message;
  const absl::Status status = b_->Receive(message).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("larger than the limit"));
}

TEST_F(ChannelTest, BytesThatAreNoMessageAreAnError) {
  const char frame[] = {3, 0, 0, 0, '\xff', '\xff', '\xff'};
  ASSERT_EQ(send(ends_[0], frame, sizeof(frame), 0), static_cast<ssize_t>(sizeof(frame)));
  v1::FromTrainer message;
  EXPECT_THAT(std::string(b_->Receive(message).status().message()), HasSubstr("not a tandem.v1.FromTrainer"));
}

TEST_F(ChannelTest, ShutdownWakesABlockedReceiver) {
  std::promise<bool> got;
  std::thread receiver([&] {
    v1::FromTrainer message;
    got.set_value(*b_->Receive(message));
  });
  b_->Shutdown();
  EXPECT_FALSE(got.get_future().get());
  receiver.join();
}

TEST_F(ChannelTest, WhatWasSentBeforeShutdownIsStillReceived) {
  ASSERT_TRUE(a_->Send(Set("last", "words")).ok());
  b_->Shutdown();
  v1::FromTrainer message;
  EXPECT_TRUE(*b_->Receive(message));
  EXPECT_FALSE(*b_->Receive(message));
}

}  // namespace
}  // namespace tandem::link
