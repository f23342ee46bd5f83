// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/connection_guard.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "platform/fake_clock.h"
#include "platform/random.h"

namespace tandem::controller {
namespace {

// A guard whose server does what the test says.
class ConnectionGuardTest : public ::testing::Test {
 protected:
  struct Ends {
    int client = -1;
    int server = -1;
  };

  ~ConnectionGuardTest() override {
    for (const int fd : open_) {
      close(fd);
    }
  }

  Ends Connect() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    guard_.Add(ends[0]);
    open_.insert(open_.end(), {ends[1], served_});
    return {.client = ends[1], .server = served_};
  }

  // Writes as much as goes in.
  static void Fill(int fd) {
    const std::string bytes(65536, 'x');
    pollfd writable{.fd = fd, .events = POLLOUT};
    while (poll(&writable, 1, 100) == 1) {
      static_cast<void>(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    }
  }

  static std::string Read(int fd) {
    std::array<char, 64> buffer{};
    pollfd readable{.fd = fd, .events = POLLIN};
    poll(&readable, 1, 5000);
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    return got > 0 ? std::string(buffer.data(), static_cast<size_t>(got)) : "";
  }

  // Whether the other side has gone, whatever it has left to be read.
  static bool HungUp(int fd) {
    pollfd gone{.fd = fd, .events = 0};
    return poll(&gone, 1, 0) == 1 && (gone.revents & POLLHUP) != 0;
  }

  platform::FakeClock clock_;
  Callers callers_{platform::SystemRandom()};
  int served_ = -1;
  std::vector<int> open_;
  ConnectionGuard guard_{
      {.most_message_bytes = 1 << 20, .most_unfinished_bytes = 8 << 20}, callers_, clock_, [this](int fd) {
        served_ = fd;
      }};
};

TEST_F(ConnectionGuardTest, BytesPassBothWays) {
  const Ends ends = Connect();
  ASSERT_EQ(send(ends.client, "question", 8, 0), 8);
  EXPECT_EQ(Read(ends.server), "question");
  ASSERT_EQ(send(ends.server, "answer", 6, 0), 6);
  EXPECT_EQ(Read(ends.client), "answer");
}

TEST_F(ConnectionGuardTest, AClientThatTakesNothingIsLetGoHoweverBusyTheOthersAre) {
  const Ends stuck = Connect();
  const Ends busy = Connect();
  Fill(stuck.server);
  shutdown(stuck.server, SHUT_RDWR);
  // The guard has seen the end when it answers this one, which it served after it.
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(send(busy.client, "1", 1, 0), 1);
    ASSERT_EQ(Read(busy.server), "1");
  }
  EXPECT_FALSE(HungUp(stuck.client)) << "it has five seconds";
  clock_.Advance(absl::Seconds(6));
  for (int i = 0; i < 100 && !HungUp(stuck.client); ++i) {
    ASSERT_EQ(send(busy.client, "2", 1, 0), 1);
    ASSERT_EQ(Read(busy.server), "2");
  }
  EXPECT_TRUE(HungUp(stuck.client));
}

}  // namespace
}  // namespace tandem::controller
