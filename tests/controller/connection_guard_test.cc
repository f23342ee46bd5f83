// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/connection_guard.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/rpc/call_refuser.h"
#include "platform/random.h"
#include "tests/platform/fake_clock.h"
#include "tests/tls/certificates.h"
#include "tls/server_tls.h"

namespace tandem::controller {
namespace {

constexpr int kPatienceMs = 30'000;  // for what comes

// A guard whose server does what the test says.
TEST(ConnectionLimitTest, OneWorkersCertificateCannotTakeAllDescriptors) {
  for (const uint64_t descriptors : {uint64_t{256}, uint64_t{1024}, uint64_t{1} << 20}) {
    const size_t most = ConnectionGuard::MostOfAWorker(descriptors);
    EXPECT_LE(3 * most, descriptors / 2) << descriptors;
    EXPECT_GE(6 * most, descriptors / 2) << "a pool shares one";
  }
}

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
    while (poll(&writable, 1, 2000) == 1) {  // the guard has taken all that it takes
      static_cast<void>(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    }
  }

  static std::string Read(int fd) {
    std::array<char, 64> buffer{};
    pollfd readable{.fd = fd, .events = POLLIN};
    poll(&readable, 1, kPatienceMs);
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    return got > 0 ? std::string(buffer.data(), static_cast<size_t>(got)) : "";
  }

  // Whether the other side has gone, whatever it has left to be read.
  static bool HungUp(int fd) {
    pollfd gone{.fd = fd, .events = 0};
    return poll(&gone, 1, 0) == 1 && (gone.revents & POLLHUP) != 0;
  }

  platform::FakeClock clock_;
  SignIns sign_ins_{platform::SystemRandom(), platform::SteadyClock()};
  Callers callers_{platform::SystemRandom(), sign_ins_};
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

// A guard that speaks TLS, and clients that do not get to the end of the handshake.
class TlsGuardTest : public ::testing::Test {
 protected:
  TlsGuardTest() {
    std::signal(SIGPIPE, SIG_IGN);
    auto tls = tls::ServerTls::Open(certificates_.Files("controller", certificates_.OfServer()),
                                    tls::kDefaultDomain);
    EXPECT_TRUE(tls.ok()) << tls.status();
    tls_ = *std::move(tls);
    guard_.emplace(ConnectionGuard::Options{.tls = tls_.get(), .most_strangers = 3}, callers_, clock_,
                   [this](int /*fd*/) { ++served_; });
  }
  ~TlsGuardTest() override {
    for (const int fd : open_) {
      close(fd);
    }
  }

  int Connect() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    guard_->Add(ends[0]);
    open_.push_back(ends[1]);
    return ends[1];
  }

  static bool HungUp(int fd, int patience_ms) {
    pollfd gone{.fd = fd, .events = POLLIN | POLLRDHUP};
    return poll(&gone, 1, patience_ms) == 1 && (gone.revents & (POLLHUP | POLLRDHUP)) != 0;
  }

  // All that comes until the other side hangs up.
  static std::string ReadAll(int fd) {
    std::string out;
    std::array<char, 4096> buffer{};
    pollfd readable{.fd = fd, .events = POLLIN};
    while (poll(&readable, 1, kPatienceMs) == 1) {
      const ssize_t got = read(fd, buffer.data(), buffer.size());
      if (got <= 0) {
        break;
      }
      out.append(buffer.data(), static_cast<size_t>(got));
    }
    return out;
  }

  platform::FakeClock clock_;
  SignIns sign_ins_{platform::SystemRandom(), platform::SteadyClock()};
  Callers callers_{platform::SystemRandom(), sign_ins_};
  tls::Certificates certificates_;
  std::unique_ptr<tls::ServerTls> tls_;
  std::atomic<int> served_ = 0;
  std::vector<int> open_;
  std::optional<ConnectionGuard> guard_;
};

TEST_F(TlsGuardTest, AClientThatDoesNotSayWhoItIsIsLetGoAfterTenSeconds) {
  const int silent = Connect();
  EXPECT_FALSE(HungUp(silent, 50));
  clock_.Advance(absl::Seconds(11));
  Connect();  // the guard looks at its clock again
  EXPECT_TRUE(HungUp(silent, kPatienceMs));
  EXPECT_EQ(served_, 0) << "gRPC has heard of none of them";
}

TEST_F(TlsGuardTest, BeyondTheMostHandshakesTheNewestIsRefused) {
  std::vector<int> first;
  for (int i = 0; i < 3; ++i) {
    first.push_back(Connect());
  }
  EXPECT_TRUE(HungUp(Connect(), kPatienceMs));
  for (const int fd : first) {
    EXPECT_FALSE(HungUp(fd, 0));
  }
  clock_.Advance(absl::Seconds(11));
  Connect();  // the guard looks at its clock again
  for (const int fd : first) {
    EXPECT_TRUE(HungUp(fd, kPatienceMs));
  }
  EXPECT_FALSE(HungUp(Connect(), 50)) << "there is room again";
}

// 65 KB of them made 2 MB of answers, which the client did not read.
TEST(CallRefuserTest, AStrangerGetsLittleMoreThanItSends) {
  const absl::Status why = absl::UnauthenticatedError(std::string(200, 'w'));
  std::string settings;
  http2::AppendFrame(http2::kSettings, 0, 0, "", settings);
  for (const http2::FrameType type :
       {http2::kHeaders, http2::kPing, http2::kSettings, http2::kContinuation}) {
    for (const size_t piece : {size_t{7}, size_t{65536}}) {
      std::string flood = std::string(http2::kPreface) + settings;
      for (int i = 0; i < 7260; ++i) {
        http2::AppendFrame(type, type == http2::kHeaders ? http2::kEndHeaders : 0,
                           static_cast<uint32_t>(2 * i + 1), "", flood);
      }
      CallRefuser refuser(why);
      std::string answers;
      for (size_t at = 0; at < flood.size() && refuser.FromClient(flood.substr(at, piece), answers);
           at += piece) {
      }
      EXPECT_LE(answers.size(), CallRefuser::kMostAnswers + 512) << int{type} << " in pieces of " << piece;
    }
  }
}

TEST_F(TlsGuardTest, WhatIsNeitherTlsNorHttp2IsClosedAtOnce) {
  const int http = Connect();
  ASSERT_GT(send(http, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 0);
  EXPECT_EQ(ReadAll(http), "");
  const int noise = Connect();
  const std::string bytes(100'000, '\x16');
  static_cast<void>(send(noise, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  ReadAll(noise);
  EXPECT_TRUE(HungUp(noise, kPatienceMs));
  EXPECT_EQ(served_, 0);
}

TEST_F(TlsGuardTest, APlaintextClientIsAnsweredOnceAndAskedToGo) {
  const int plain = Connect();
  std::string calls(http2::kPreface);
  http2::AppendFrame(http2::kSettings, 0, 0, "", calls);
  http2::AppendFrame(http2::kPing, 0, 0, "12345678", calls);
  http2::AppendFrame(http2::kHeaders, http2::kEndHeaders, 1, "whatever it is", calls);
  http2::AppendFrame(http2::kHeaders, 0, 3, "the first half", calls);
  http2::AppendFrame(http2::kContinuation, http2::kEndHeaders, 3, "the second", calls);
  ASSERT_EQ(send(plain, calls.data(), calls.size(), MSG_NOSIGNAL), static_cast<ssize_t>(calls.size()));
  std::string expected;
  http2::AppendFrame(http2::kSettings, 0, 0, "", expected);
  http2::AppendFrame(http2::kSettings, http2::kAck, 0, "", expected);
  http2::AppendFrame(http2::kPing, http2::kAck, 0, "12345678", expected);
  http2::AppendEnd(
      1, /*answered=*/false, 16,
      "this address of the controller speaks TLS, and the client does not; give --tls-ca, --tls-cert "
      "and --tls-key",
      expected);
  http2::AppendGoAway(1, expected);
  std::string got(expected.size(), '\0');
  pollfd readable{.fd = plain, .events = POLLIN};
  size_t size = 0;
  while (size < expected.size() && poll(&readable, 1, kPatienceMs) == 1) {
    const ssize_t more = read(plain, got.data() + size, got.size() - size);
    ASSERT_GT(more, 0);
    size += static_cast<size_t>(more);
  }
  EXPECT_EQ(got, expected);
  // The client may send the rest of its calls, or it would lose the answer, but no more than that.
  std::string flood;
  http2::AppendFrame(http2::kData, 0, 1, std::string(16384, 'x'), flood);
  for (int i = 0; i < 16 && !HungUp(plain, 0); ++i) {
    static_cast<void>(send(plain, flood.data(), flood.size(), MSG_NOSIGNAL));
  }
  EXPECT_TRUE(HungUp(plain, kPatienceMs));
  EXPECT_EQ(served_, 0);
}

}  // namespace
}  // namespace tandem::controller
