// SPDX-License-Identifier: Apache-2.0
#include "tls/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::tls {
namespace {

using ::testing::HasSubstr;

TEST(IdentityTest, OnlyTheUriOfTheDomainCounts) {
  const auto alice = IdentityOf(
      {"https://example.org", "spiffe://other.example/admin/eve", "spiffe://tandem.local/user/alice"},
      kDefaultDomain);
  ASSERT_TRUE(alice.ok()) << alice.status();
  EXPECT_EQ(*alice, (Identity{Role::kUser, "alice"}));
  EXPECT_EQ(UriOf(*alice, kDefaultDomain), "spiffe://tandem.local/user/alice");
  EXPECT_EQ(IdentityOf({"spiffe://lab.example/admin/a@b.c"}, "lab.example")->role, Role::kAdmin);
}

TEST(IdentityTest, IdentityNeedsExactlyOneName) {
  for (const std::vector<std::string>& uris : std::vector<std::vector<std::string>>{
           {},
           {"spiffe://other.example/user/alice"},
           {"spiffe://tandem.local/user/alice", "spiffe://tandem.local/admin/alice"},
           {"spiffe://tandem.local/user/"},
           {"spiffe://tandem.local/local/root"},
           {"spiffe://tandem.local/user/a/b"},
           {"spiffe://tandem.local/user/al*"},
           {"spiffe://tandem.local/user/a b"},
           {"spiffe://tandem.local/users/alice"},
           {"spiffe://tandem.local/user/" + std::string(65, 'a')},
           {std::string("spiffe://tandem.local/user/alice\0admin", 38)},
           {"SPIFFE://tandem.local/user/alice"},
       }) {
    const absl::Status status = IdentityOf(uris, kDefaultDomain).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << (uris.empty() ? "" : uris[0]);
    EXPECT_THAT(std::string(status.message()), HasSubstr("spiffe://tandem.local/user/NAME"));
  }
}

TEST(IdentityTest, WorkerMatchesItsNameOrPool) {
  const Identity one{Role::kWorker, "w-1"};
  EXPECT_TRUE(MayBeWorker(one, "w-1"));
  EXPECT_FALSE(MayBeWorker(one, "w-10"));
  const Identity pool{Role::kWorker, "w-*"};
  EXPECT_TRUE(MayBeWorker(pool, "w-10"));
  EXPECT_FALSE(MayBeWorker(pool, "x-1"));
  EXPECT_FALSE(MayBeWorker({Role::kUser, "w-1"}, "w-1"));
  EXPECT_FALSE(MayBeWorker({Role::kAdmin, "w-1"}, "w-1"));
  EXPECT_TRUE(MayBeWorker({Role::kLocal, "local"}, "w-1"));
}

}  // namespace
}  // namespace tandem::tls
