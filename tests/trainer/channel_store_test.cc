// SPDX-License-Identifier: Apache-2.0
#include "trainer/channel_store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "comm/communicator.h"
#include "link/channel.h"
#include "tandem/v1/trainer.pb.h"

namespace tandem::trainer {
namespace {

class ChannelStoreTest : public testing::Test {
 protected:
  ChannelStoreTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    trainer_ = std::make_unique<link::Channel>(ends[0]);
    daemon_ = std::make_unique<link::Channel>(ends[1]);
    v1::AttemptId attempt;
    attempt.set_job_id("job");
    attempt.set_attempt(3);
    store_ = std::make_unique<ChannelStore>(*trainer_, attempt, /*rank=*/1);
  }

  v1::FromTrainer Receive() {
    v1::FromTrainer message;
    const absl::StatusOr<bool> received = daemon_->Receive(message);
    EXPECT_TRUE(received.ok() && *received);
    return message;
  }

  void Deliver(const std::string& key, const std::string& value) {
    v1::KvValue delivered;
    delivered.set_key(key);
    delivered.set_value(value);
    store_->Deliver(delivered);
  }

  std::unique_ptr<link::Channel> trainer_;
  std::unique_ptr<link::Channel> daemon_;
  std::unique_ptr<ChannelStore> store_;
};

TEST_F(ChannelStoreTest, SetsCarryAttemptAndRank) {
  store_->Set("group/0/0", std::string("\0bytes", 6));
  const v1::FromTrainer message = Receive();
  EXPECT_EQ(message.set().id().job_id(), "job");
  EXPECT_EQ(message.set().id().attempt(), 3);
  EXPECT_EQ(message.set().key(), "group/0/0");
  EXPECT_EQ(message.set().value(), std::string("\0bytes", 6));
  EXPECT_EQ(message.set().rank(), 1);
}

TEST_F(ChannelStoreTest, KeyIsRequestedOnce) {
  std::string first;
  std::thread reader([&] { first = store_->Get("key", absl::InfiniteDuration()); });
  const v1::FromTrainer asked = Receive();
  EXPECT_EQ(asked.get().id().attempt(), 3);
  EXPECT_EQ(asked.get().key(), "key");
  EXPECT_EQ(asked.get().rank(), 1);
  std::string second;
  std::thread other([&] { second = store_->Get("key", absl::InfiniteDuration()); });
  Deliver("key", "value");
  reader.join();
  other.join();
  EXPECT_EQ(first, "value");
  EXPECT_EQ(second, "value");
  EXPECT_EQ(store_->Get("key", absl::ZeroDuration()), "value");
  store_->Set("next", "");
  EXPECT_EQ(Receive().set().key(), "next") << "nothing was asked for in between";
}

TEST_F(ChannelStoreTest, MissingKeyIsNamedAtTheDeadline) {
  Deliver("other", "value");
  try {
    store_->Get("key", absl::Milliseconds(1));
    FAIL() << "there is no value";
  } catch (const comm::CommError& error) {
    EXPECT_STREQ(error.what(), "rendezvous: no rank has set key within 1ms");
  }
}

TEST_F(ChannelStoreTest, LostDaemonIsACommunicationError) {
  daemon_.reset();
  EXPECT_THROW(store_->Set("key", "value"), comm::CommError);
  EXPECT_THROW(store_->Get("key", absl::InfiniteDuration()), comm::CommError);
}

}  // namespace
}  // namespace tandem::trainer
