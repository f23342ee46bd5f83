// SPDX-License-Identifier: Apache-2.0
#include "config/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::config {
namespace {

using testing::HasSubstr;

TEST(AddressTest, ANameAndAnAddressOfBothKindsAreHosts) {
  for (const char* const text :
       {"localhost:7471", "controller.example:7471", "127.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:7471"}) {
    EXPECT_EQ(WhyNotAddress(text, {}), "") << text;
  }
}

TEST(AddressTest, AHostWithoutAPortAPortOutOfRangeAndIpv6WithoutBracketsAreNone) {
  for (const char* const text :
       {"", "localhost", "7471", ":7471", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
        "127.0.0.1:99999999999", "127.0.0.1:+1", "127.0.0.1: 1", " 127.0.0.1:1", "::1:7471", "[::1]",
        "[127.0.0.1]:7471", "http://127.0.0.1:7471", "a/b:1", "unix:/s", "off"}) {
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

TEST(AddressTest, ThePathOfASocketFitsIntoTheKernelsStructure) {
  const AddressForm form = {.socket = true};
  EXPECT_EQ(WhyNotAddress("unix:" + std::string(107, 'a'), form), "");
  EXPECT_THAT(WhyNotAddress("unix:" + std::string(108, 'a'), form),
              HasSubstr("a socket's path has 1 to 107 bytes, this one 108; choose a shorter folder"));
  EXPECT_EQ(
      WhyNotAddress("unix:", form),
      "\"unix:\": a socket's path has 1 to 107 bytes, this one 0; name one, as in unix:/run/tandem/socket");
}

TEST(AddressTest, WhatIsNotTextIsShownAsText) {
  EXPECT_THAT(WhyNotAddress("a\nb\x1b[31m:1", {}), HasSubstr("\"a\\nb\\x1b[31m:1\" is not an address"));
}

}  // namespace
}  // namespace tandem::config
