// SPDX-License-Identifier: Apache-2.0
#include "comm/network_interface.h"

#include <gtest/gtest.h>

namespace tandem::comm {
namespace {

TEST(InterfaceOfTest, FindsTheInterfaceOfAnAddress) {
  EXPECT_EQ(InterfaceOf("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceOf("localhost"), "lo");
  EXPECT_EQ(InterfaceOf("203.0.113.9"), "") << "an address of documents";
  EXPECT_EQ(InterfaceOf("no-such-host.invalid"), "");
}

}  // namespace
}  // namespace tandem::comm
