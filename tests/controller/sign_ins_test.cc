// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/sign_ins.h"

#include <gtest/gtest.h>

#include "platform/random.h"
#include "tests/platform/fake_clock.h"

namespace tandem::controller {
namespace {

using tls::Role;

class SignInsTest : public ::testing::Test {
 protected:
  SignInsTest() { sign_ins_.SetPage(std::string("127.0.0.1:9464")); }

  static tls::Fingerprints FingerprintOf(const std::string& text) {
    return std::make_shared<const std::vector<std::string>>(1, text);
  }
  std::string CodeOf(const Caller& caller) { return sign_ins_.Issue(caller)->secret; }
  std::string SessionOf(const Caller& caller) { return sign_ins_.Redeem(CodeOf(caller))->secret; }

  platform::FakeClock clock_;
  SignIns sign_ins_{platform::SystemRandom(), clock_};
  const Caller alice_{
      .identity = {Role::kUser, "alice"}, .address = "10.0.0.3:1", .fingerprints = FingerprintOf("a1")};
  const Caller bob_{
      .identity = {Role::kUser, "bob"}, .address = "10.0.0.4:1", .fingerprints = FingerprintOf("b1")};
};

TEST_F(SignInsTest, CodeGivesOneSession) {
  const std::string code = CodeOf(alice_);
  EXPECT_FALSE(sign_ins_.Find(code).has_value()) << "a code is not a session";
  const auto session = sign_ins_.Redeem(code);
  ASSERT_TRUE(session.has_value());
  EXPECT_EQ(session->caller.identity, alice_.identity);
  EXPECT_EQ(session->life, SignIns::kSessionLife);
  EXPECT_NE(session->secret, code);
  EXPECT_EQ(sign_ins_.Find(session->secret)->identity, alice_.identity);
  EXPECT_FALSE(sign_ins_.Redeem(code).has_value());
  EXPECT_FALSE(sign_ins_.Redeem(session->secret).has_value()) << "a session is not a code";
  EXPECT_TRUE(sign_ins_.Find(session->secret).has_value()) << "nor does it end by that";
}

TEST_F(SignInsTest, CodesLastAMinuteSessionsEightHours) {
  const std::string late = CodeOf(alice_);
  clock_.Advance(SignIns::kCodeLife);
  EXPECT_FALSE(sign_ins_.Redeem(late).has_value());
  const std::string session = SessionOf(alice_);
  clock_.Advance(SignIns::kSessionLife - absl::Seconds(1));
  EXPECT_TRUE(sign_ins_.Find(session).has_value());
  clock_.Advance(absl::Seconds(1));
  EXPECT_FALSE(sign_ins_.Find(session).has_value());
  EXPECT_FALSE(sign_ins_.End(session).has_value());
}

TEST_F(SignInsTest, SessionEndsWithItsCallersCertificate) {
  Caller soon = alice_;
  soon.not_after = clock_.Now() + absl::Minutes(10);
  const auto session = sign_ins_.Redeem(CodeOf(soon));
  EXPECT_EQ(session->life, absl::Minutes(10));
  clock_.Advance(absl::Minutes(10));
  EXPECT_FALSE(sign_ins_.Find(session->secret).has_value());
  soon.not_after = clock_.Now() + absl::Seconds(5);
  const std::string code = CodeOf(soon);
  clock_.Advance(absl::Seconds(5));
  EXPECT_FALSE(sign_ins_.Redeem(code).has_value());
}

TEST_F(SignInsTest, SigningOutEndsOneSession) {
  const std::string first = SessionOf(alice_);
  const std::string second = SessionOf(alice_);
  EXPECT_EQ(sign_ins_.End(first)->identity, alice_.identity);
  EXPECT_FALSE(sign_ins_.Find(first).has_value());
  EXPECT_FALSE(sign_ins_.End(first).has_value());
  EXPECT_TRUE(sign_ins_.Find(second).has_value());
}

TEST_F(SignInsTest, OldestSessionOfACallerGivesWay) {
  const std::string bobs = SessionOf(bob_);
  const std::string oldest = SessionOf(alice_);
  std::string newest;
  for (size_t i = 0; i < SignIns::kMostOfOne; ++i) {
    newest = SessionOf(alice_);
  }
  EXPECT_FALSE(sign_ins_.Find(oldest).has_value());
  EXPECT_TRUE(sign_ins_.Find(newest).has_value());
  EXPECT_TRUE(sign_ins_.Find(bobs).has_value());
}

TEST_F(SignInsTest, RevocationEndsOnlyItsOwnSessions) {
  Caller other = alice_;
  other.fingerprints = FingerprintOf(std::string(64, 'c'));
  const std::string lost_code = CodeOf(other);
  const std::string lost = SessionOf(other);
  const std::string kept = SessionOf(alice_);
  const std::string bobs = SessionOf(bob_);
  sign_ins_.EndRevoked(*tls::RevokedList::Parse(other.fingerprints->front() + "\nuser/bob\n", "list"));
  EXPECT_FALSE(sign_ins_.Find(lost).has_value());
  EXPECT_FALSE(sign_ins_.Redeem(lost_code).has_value());
  EXPECT_FALSE(sign_ins_.Find(bobs).has_value());
  EXPECT_TRUE(sign_ins_.Find(kept).has_value());
  EXPECT_TRUE(absl::IsPermissionDenied(sign_ins_.Issue(other).status())) << "its connection is not ended yet";
  EXPECT_TRUE(sign_ins_.Issue(alice_).ok());
}

}  // namespace
}  // namespace tandem::controller
