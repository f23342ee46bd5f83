// SPDX-License-Identifier: Apache-2.0
#include "worker/data_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include "tests/worker/daemon_fixture.h"

namespace tandem::worker {
namespace {

using testing::HasSubstr;

// An address of this machine that others reach; empty where it has none.
std::string OutsideAddress() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return "";
  }
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    const bool usable = one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET &&
                        (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    char text[NI_MAXHOST];
    if (usable && getnameinfo(one->ifa_addr, sizeof(sockaddr_in), text, sizeof(text), nullptr, 0,
                              NI_NUMERICHOST) == 0) {
      found = text;
    }
  }
  freeifaddrs(all);
  return found;
}

TEST(LocalAddressTowardTest, IsLoopbackBesideTheController) {
  for (const char* const target : {"unix:/run/tandem", "unix:relative", "unix-abstract:x", "127.0.0.1:7070",
                                   "ipv4:127.0.0.1:7070", "dns:///127.0.0.1:7070", "dns:127.0.0.1:7070"}) {
    EXPECT_EQ(LocalAddressToward(target).value_or("nothing"), "127.0.0.1") << target;
  }
  EXPECT_EQ(LocalAddressToward("[::1]:7070").value_or("nothing"), "::1");
  EXPECT_EQ(LocalAddressToward("ipv6:[::1]:7070").value_or("nothing"), "::1");
}

TEST(LocalAddressTowardTest, IsTheInterfaceTowardsTheController) {
  const std::string address = OutsideAddress();
  if (address.empty()) {
    GTEST_SKIP() << "this machine has no address but loopback";
  }
  EXPECT_EQ(LocalAddressToward(address + ":7070").value_or("nothing"), address);
}

TEST(LocalAddressTowardTest, SaysWhatItCannotFindOut) {
  for (const char* const target :
       {"", "xds:///controller", "vsock:3:7070", "[::1", "[::1]x", "::1:7070", ":7070"}) {
    const absl::StatusOr<std::string> got = LocalAddressToward(target);
    EXPECT_TRUE(absl::IsInvalidArgument(got.status())) << target << ": " << got.status();
  }
  const absl::StatusOr<std::string> unknown = LocalAddressToward("nowhere.invalid:7070");
  EXPECT_TRUE(absl::IsUnavailable(unknown.status())) << unknown.status();
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("nowhere.invalid:7070"));
}

TEST_F(DaemonTest, ReportsItsOwnOrTheGivenDataAddress) {
  StartWorker();
  ASSERT_TRUE(WaitForHellos(1));
  EXPECT_EQ(controller_->seen().hellos[0].inventory().data_address(), "127.0.0.1");
  worker_->Kill();
  StartWorker({"--data-address", "127.0.0.7"});
  ASSERT_TRUE(WaitForHellos(2));
  EXPECT_EQ(controller_->seen().hellos[1].inventory().data_address(), "127.0.0.7");
}

TEST(CheckDataAddressTest, TakesAddressesAndNamesOfThisMachine) {
  for (const char* const address : {"127.0.0.1", "127.0.0.9", "localhost", "0.0.0.0"}) {
    EXPECT_TRUE(CheckDataAddress(address).ok()) << CheckDataAddress(address);
  }
}

TEST(CheckDataAddressTest, RefusesThoseOfOtherMachinesAndOfNone) {
  for (const char* const address : {"192.0.2.1", "nowhere.invalid", "not an address", "127.0.0.1:7070", ""}) {
    const absl::Status status = CheckDataAddress(address);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not an address of this machine: ")) << address;
  }
}

TEST_F(DaemonTest, AnUnusableDataAddressIsRefusedAtOnce) {
  WorkerProcess worker({.controller = "unix:" + folder_ + "/none",
                        .state_folder = folder_ + "/state",
                        .more = {"--data-address", "192.0.2.1"},
                        .log = folder_ + "/log"});
  const std::optional<int> status = worker.Wait();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 1);
  EXPECT_THAT(ReadAll(folder_ + "/log"), HasSubstr("--data-address: \"192.0.2.1\" is not an address"));
}

TEST_F(DaemonTest, UnknownAddressFormIsRefused) {
  WorkerProcess worker(
      {.controller = "xds:///controller", .state_folder = folder_ + "/state", .log = folder_ + "/log"});
  const std::optional<int> status = worker.Wait();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 2);
  EXPECT_THAT(ReadAll(folder_ + "/log"), HasSubstr("--controller: \"xds:///controller\" is not an address"));
}

}  // namespace
}  // namespace tandem::worker
