// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/open_connections.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "controller/rpc/callers.h"
#include "tests/platform/fake_clock.h"

namespace tandem::controller {
namespace {

// Connections over loopback; the server's ends are what gRPC would have.
class OpenConnectionsTest : public ::testing::Test {
 protected:
  OpenConnectionsTest() {
    socklen_t size = sizeof(name_);
    name_.sin_family = AF_INET;
    name_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&name_), size), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&name_), &size);
  }
  ~OpenConnectionsTest() override {
    for (const int fd : clients_) {
      close(fd);
    }
    for (const int fd : servers_) {
      close(fd);
    }
    close(listener_);
  }

  // The server's end.
  int Connect() {
    clients_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(clients_.back(), reinterpret_cast<const sockaddr*>(&name_), sizeof(name_)), 0);
    servers_.push_back(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
    return servers_.back();
  }
  void CloseServersEnd(int fd) {
    close(fd);
    std::erase(servers_, fd);
  }
  // A caller on that connection.
  static Caller On(int fd, const char* name, tls::Role role = tls::Role::kUser) {
    return {.identity = {role, name},
            .address = AddressOfSocket(fd),
            .fingerprints = std::make_shared<const std::vector<std::string>>(1, name)};
  }
  static bool HungUp(int fd) {
    pollfd gone{.fd = fd, .events = POLLRDHUP};
    return poll(&gone, 1, 0) == 1 && (gone.revents & (POLLHUP | POLLRDHUP)) != 0;
  }

  sockaddr_in name_{};
  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::vector<int> clients_;
  std::vector<int> servers_;
  platform::FakeClock clock_;
  OpenConnections connections_{
      {.most_strangers = 5, .most_strangers_of_address = 3, .most_of_one = 2, .most_of_worker = 3}, clock_};
};

TEST_F(OpenConnectionsTest, StrangersPerMachineAreLimited) {
  const int first = Connect();
  const int second = Connect();
  for (const int fd : {first, second, Connect()}) {
    EXPECT_TRUE(connections_.Add(fd).ok());
  }
  const int next = Connect();
  EXPECT_TRUE(absl::IsResourceExhausted(connections_.Add(next)));
  EXPECT_TRUE(connections_.Claim(On(first, "alice")).ok());
  EXPECT_TRUE(connections_.Add(next).ok()) << "one of them is no stranger any more";
  EXPECT_FALSE(connections_.Add(Connect()).ok());
  CloseServersEnd(second);
  EXPECT_TRUE(connections_.Add(Connect()).ok()) << "one of them has ended";
}

TEST_F(OpenConnectionsTest, ReusedDescriptorIsAnotherConnection) {
  const int first = Connect();
  ASSERT_TRUE(connections_.Add(first).ok());
  ASSERT_TRUE(connections_.Claim(On(first, "alice")).ok());
  ASSERT_EQ(dup2(Connect(), first), first);
  connections_.Sweep(*tls::RevokedList::Parse("user/alice\n", "list"));
  EXPECT_FALSE(HungUp(clients_.back())) << "it is not hers";
}

TEST_F(OpenConnectionsTest, CallIsNotOfAnEndedConnection) {
  const int ended = Connect();
  ASSERT_TRUE(connections_.Add(ended).ok());
  const int open = dup(ended);  // the same address, in a descriptor of its own
  servers_.push_back(open);
  const int other = Connect();
  ASSERT_EQ(dup2(other, ended), ended);  // its descriptor is another connection now
  ASSERT_TRUE(connections_.Add(open).ok());
  ASSERT_TRUE(connections_.Claim(On(open, "alice")).ok());
  connections_.Sweep(*tls::RevokedList::Parse("user/alice\n", "list"));
  EXPECT_TRUE(HungUp(clients_[0]));
}

TEST_F(OpenConnectionsTest, ExcessConnectionEndsAfterItsAnswer) {
  std::vector<int> own;
  for (int i = 0; i < 3; ++i) {
    own.push_back(Connect());
    ASSERT_TRUE(connections_.Add(own.back()).ok());
  }
  EXPECT_TRUE(connections_.Claim(On(own[0], "eve")).ok());
  EXPECT_TRUE(connections_.Claim(On(own[1], "eve")).ok());
  EXPECT_TRUE(connections_.Claim(On(own[1], "eve")).ok()) << "it is counted once";
  EXPECT_EQ(connections_.Claim(On(own[2], "eve")).message(),
            "user/eve has 2 connections open, the most that one caller may have; close some, or share them");
  connections_.Sweep({});
  EXPECT_FALSE(HungUp(clients_[2])) << "it reads why";
  clock_.Advance(absl::Seconds(6));
  connections_.Sweep({});
  EXPECT_TRUE(HungUp(clients_[2]));
  EXPECT_FALSE(HungUp(clients_[0]));
  CloseServersEnd(own[0]);
  const int next = Connect();
  ASSERT_TRUE(connections_.Add(next).ok());
  EXPECT_TRUE(connections_.Claim(On(next, "eve")).ok()) << "one has ended";
}

TEST_F(OpenConnectionsTest, IdleCallerIsDropped) {
  const int silent = Connect();
  const int caller = Connect();
  ASSERT_TRUE(connections_.Add(silent).ok());
  ASSERT_TRUE(connections_.Add(caller).ok());
  ASSERT_TRUE(connections_.Claim(On(caller, "alice")).ok());
  clock_.Advance(OpenConnections::kFirstCall + absl::Seconds(1));
  connections_.Sweep({});
  EXPECT_TRUE(HungUp(clients_[0]));
  EXPECT_FALSE(HungUp(clients_[1]));
}

TEST_F(OpenConnectionsTest, WhoeverIsInTheListLosesItsConnections) {
  const int bobs = Connect();
  const int alices = Connect();
  ASSERT_TRUE(connections_.Add(bobs).ok());
  ASSERT_TRUE(connections_.Add(alices).ok());
  ASSERT_TRUE(connections_.Claim(On(bobs, "bob")).ok());
  ASSERT_TRUE(connections_.Claim(On(alices, "alice")).ok());
  connections_.Sweep(*tls::RevokedList::Parse("user/bob\n", "list"));
  EXPECT_TRUE(HungUp(clients_[0]));
  EXPECT_FALSE(HungUp(clients_[1]));
}

TEST_F(OpenConnectionsTest, ReusedAddressIsClaimedAgain) {
  const int first = Connect();
  ASSERT_TRUE(connections_.Add(first).ok());
  ASSERT_TRUE(connections_.Claim(On(first, "alice")).ok());
  // The next connection from her address comes before anything has looked whether the first has ended.
  ASSERT_TRUE(connections_.Add(first).ok());
  ASSERT_TRUE(connections_.Claim(On(first, "alice")).ok());
  clock_.Advance(OpenConnections::kFirstCall + absl::Seconds(1));
  connections_.Sweep({});
  EXPECT_FALSE(HungUp(clients_[0])) << "it has called";
}

// A call finds its connection by it.
TEST_F(OpenConnectionsTest, GrpcAndTheSocketAgreeOnAnAddress) {
  const int fd = Connect();
  EXPECT_EQ(AddressOfPeer("ipv4:" + AddressOfSocket(fd)), AddressOfSocket(fd));
  EXPECT_EQ(AddressOfPeer("ipv6:[::1]:7"), "[::1]:7");
  EXPECT_EQ(AddressOfPeer("ipv6:%5Bfe80::1%252%5D:7"), "[fe80::1]:7");
  EXPECT_EQ(AddressOfPeer("unix:"), "unix");
}

TEST(ConnectionLimitTest, OneWorkersCertificateCannotTakeAllDescriptors) {
  for (const uint64_t descriptors : {uint64_t{256}, uint64_t{1024}, uint64_t{1} << 20}) {
    EXPECT_LE(OpenConnections::MostOfAWorker(descriptors), descriptors / 2) << descriptors;
    EXPECT_GE(OpenConnections::MostOfAWorker(descriptors), descriptors / 3) << "a pool shares one";
  }
}

}  // namespace
}  // namespace tandem::controller
