// SPDX-License-Identifier: Apache-2.0
#include "platform/net_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "platform/host.h"

namespace tandem::platform {
namespace {

using testing::HasSubstr;

TEST(AddressTest, NamesAndAddressesAreHosts) {
  for (const char* const text :
       {"localhost:7471", "controller.example:7471", "127.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:7471"}) {
    EXPECT_EQ(WhyNotAddress(text, {}), "") << text;
  }
}

TEST(AddressTest, MalformedAddressesAreRefused) {
  for (const char* const text :
       {"", "localhost", "7471", ":7471", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
        "127.0.0.1:99999999999", "127.0.0.1:+1", "127.0.0.1: 1", " 127.0.0.1:1", "::1:7471", "[::1]",
        "[127.0.0.1]:7471", "http://127.0.0.1:7471", "a/b:1", "unix:/s", "127.0.0.1:80s", "off"}) {
    EXPECT_THAT(
        WhyNotAddress(text, {}),
        HasSubstr(
            "\" is not an address; allowed: HOST:PORT with a port from 1 to 65535, as in 127.0.0.1:7471"))
        << text;
  }
}

TEST(AddressTest, AFlagMayTakeMore) {
  EXPECT_EQ(WhyNotAddress(":7471", {.every_host = true}), "");
  EXPECT_EQ(WhyNotAddress("localhost:0", {.least_port = 0}), "");
  EXPECT_EQ(WhyNotAddress("unix:/s", {.socket = true}), "");
  EXPECT_EQ(WhyNotAddress("off", {.word = "off"}), "");
  EXPECT_EQ(WhyNotAddress("x", {.socket = true, .least_port = 0, .word = "off", .example = "127.0.0.1:9464"}),
            "\"x\" is not an address; allowed: unix:/PATH or HOST:PORT with a port from 0 to 65535, as in "
            "127.0.0.1:9464, or off");
}

TEST(AddressTest, SocketPathFitsTheKernels) {
  const AddressForm form = {.socket = true};
  EXPECT_EQ(WhyNotAddress("unix:" + std::string(107, 'a'), form), "");
  EXPECT_THAT(WhyNotAddress("unix:" + std::string(108, 'a'), form),
              HasSubstr("a socket's path has 1 to 107 bytes, this one 108; choose a shorter folder"));
  EXPECT_EQ(
      WhyNotAddress("unix:", form),
      "\"unix:\": a socket's path has 1 to 107 bytes, this one 0; name one, as in unix:/run/tandem/socket");
}

TEST(AddressTest, Ipv6WithoutBracketsIsToldSo) {
  EXPECT_THAT(WhyNotAddress("fd00::1:7471", {}),
              HasSubstr("; an IPv6 address has brackets, as in [fd00::1]:7471"));
}

TEST(HostPortTest, HostHasNoBracketsButItsText) {
  EXPECT_EQ(ReadHostPort("[fd00::1]:7471"), (HostPort{"fd00::1", 7471}));
  EXPECT_EQ(ReadHostPort(":0"), (HostPort{"", 0}));
  for (const char* const text : {"[fd00::1]:7471", "10.0.0.1:1", "controller.example:65535", ":9464"}) {
    EXPECT_EQ(TextOf(*ReadHostPort(text)), text);
  }
}

TEST(HostPortTest, ATargetMayHaveAScheme) {
  for (const char* const text :
       {"[::1]:70", "ipv6:[::1]:70", "dns:[::1]:70", "dns:///[::1]:70", "dns://1.1.1.1/[::1]:70"}) {
    EXPECT_EQ(ReadTarget(text), (HostPort{"::1", 70})) << text;
  }
  for (const char* const text : {"", "xds:///controller", "vsock:3:7070", "[::1", "[::1]x", "dns://7070"}) {
    EXPECT_EQ(ReadTarget(text), std::nullopt) << text;
  }
}

TEST(HostPortTest, RequestsHostMayLackAPort) {
  EXPECT_EQ(HostOf("[::1]:80"), "::1");
  EXPECT_EQ(HostOf("[::1]"), "::1");
  EXPECT_EQ(HostOf("localhost"), "localhost");
  EXPECT_EQ(HostOf("localhost:9464"), "localhost");
  EXPECT_EQ(HostOf("evil.example:80:localhost"), "evil.example:80:localhost");
}

TEST(LoopbackTest, IsWhatNoOtherMachineReaches) {
  for (const char* const host :
       {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.9", "localhost", "LocalHost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* const host : {"", "128.0.0.1", "0.0.0.0", "::", "fd00::1", "::ffff:10.0.0.1",
                                 "127.example.org", "localhost.example.org", "[::1]"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(LoopbackTest, AnAddressIsLocalBySocketOrHost) {
  for (const char* const text : {"unix:/s", "localhost:1", "127.9.9.9:1", "[::1]:1"}) {
    EXPECT_TRUE(IsLocalAddress(text)) << text;
  }
  for (const char* const text : {"10.0.0.1:1", "[fd00::1]:1", ":1", "127.0.0.1", "127.example.org:1"}) {
    EXPECT_FALSE(IsLocalAddress(text)) << text;
  }
}

TEST(AddressTest, WhatIsNotTextIsShownAsText) {
  EXPECT_THAT(WhyNotAddress("a\nb\x1b[31m:1", {}), HasSubstr("\"a\\nb\\x1b[31m:1\" is not an address"));
}

}  // namespace
}  // namespace tandem::platform
