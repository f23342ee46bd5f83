// SPDX-License-Identifier: Apache-2.0
#include "tls/tls_files.h"

#include <gmock/gmock.h>

#include "tests/tls/certificates.h"
#include "tls/client_tls.h"
#include "tls/server_tls.h"

namespace tandem::tls {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TlsFilesTest : public ::testing::Test {
 protected:
  std::string WhyNot(const TlsFiles& files) const {
    return std::string(ReadValidTlsFiles(files, absl::Now()).status().message());
  }

  Certificates certificates_;
  const Identity alice_{Role::kUser, "alice"};
  const TlsFiles good_ = certificates_.Files("alice", certificates_.Of(alice_));
};

TEST_F(TlsFilesTest, SayWhoTheyAreOf) {
  const absl::StatusOr<TlsTexts> texts = ReadValidTlsFiles(good_, absl::Now());
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_THAT(texts->own.uris, ::testing::ElementsAre("spiffe://tandem.local/user/alice"));
  EXPECT_EQ(texts->own.subject, "CN=user/alice");
  EXPECT_EQ(texts->own.issuer, "CN=Test CA");
}

TEST_F(TlsFilesTest, AreRefusedWithTheFileAndWhatToDo) {
  TlsFiles files = good_;
  files.key.clear();
  EXPECT_THAT(WhyNot(files),
              HasSubstr("--tls-key is missing: TLS takes --tls-ca, --tls-cert and --tls-key together"));
  files = good_;
  files.certificate += "x";
  EXPECT_THAT(WhyNot(files),
              AllOf(HasSubstr("--tls-cert: "), HasSubstr("alice.crtx"), HasSubstr("No such file")));
  files = good_;
  files.ca = good_.key;
  EXPECT_THAT(WhyNot(files),
              AllOf(HasSubstr("--tls-ca: "), HasSubstr("it holds no certificate"), Not(HasSubstr("BEGIN"))));
  files = good_;
  files.key = certificates_.Files("bob", certificates_.Of({Role::kUser, "bob"})).key;
  EXPECT_THAT(WhyNot(files), HasSubstr("bob.key is not the key of "));
  files = good_;
  files.key = good_.certificate;
  EXPECT_NE(WhyNot(files), "") << "a certificate is not a key";
}

TEST_F(TlsFilesTest, AKeyThatOthersMayReadIsRefused) {
  ASSERT_EQ(chmod(good_.key.c_str(), 0644), 0);
  EXPECT_THAT(WhyNot(good_), HasSubstr("others of this machine may read or write " + good_.key +
                                       " (mode 0644); chmod 600 it"));
  ASSERT_EQ(chmod(good_.key.c_str(), 0440), 0);
  EXPECT_EQ(WhyNot(good_), "");
}

TEST_F(TlsFilesTest, ACertificateThatIsNotValidNowIsRefusedWithItsDate) {
  EXPECT_THAT(WhyNot(certificates_.Files("old", certificates_.Of(alice_, -absl::Hours(3), -absl::Hours(2)))),
              AllOf(HasSubstr("old.crt (CN=user/alice) expired on "), HasSubstr("renew it")));
  EXPECT_THAT(WhyNot(certificates_.Files("new", certificates_.Of(alice_, absl::Hours(2), absl::Hours(3)))),
              HasSubstr("is not valid before "));
}

TEST_F(TlsFilesTest, NothingWaitsForAFifo) {
  TlsFiles files = good_;
  files.key = certificates_.folder() + "/fifo";
  ASSERT_EQ(mkfifo(files.key.c_str(), 0600), 0);
  EXPECT_THAT(WhyNot(files), HasSubstr("FIFO"));
}

TEST_F(TlsFilesTest, AServerTakesNewFilesWhenTheyStandStillAndKeepsTheOldOnesWhereTheyAreBad) {
  const TlsFiles files = certificates_.Files("controller", certificates_.OfServer());
  const auto server = ServerTls::Open(files, kDefaultDomain);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto first = (*server)->context();
  certificates_.Files("controller", certificates_.OfServer());
  EXPECT_TRUE((*server)->Refresh().ok());
  EXPECT_EQ((*server)->context(), first) << "they may still be changing";
  EXPECT_TRUE((*server)->Refresh().ok());
  const auto second = (*server)->context();
  EXPECT_NE(second, first);

  certificates_.Write("controller.key", "no key\n", 0600);
  EXPECT_TRUE((*server)->Refresh().ok());
  EXPECT_THAT(std::string((*server)->Refresh().message()), HasSubstr("controller.key holds no private key"));
  EXPECT_TRUE((*server)->Refresh().ok()) << "it is reported once";
  EXPECT_EQ((*server)->context(), second);
}

TEST_F(TlsFilesTest, WhatCouldNotBeTakenIsTakenAsSoonAsItCan) {
  const auto server =
      ServerTls::Open(certificates_.Files("controller", certificates_.OfServer()), kDefaultDomain);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto first = (*server)->context();
  // A new certificate that cannot be used yet, for a reason that no change of the file ends: here its mode,
  // elsewhere a clock that is behind the authority's.
  certificates_.Files("controller", certificates_.OfServer());
  const std::string key = certificates_.folder() + "/controller.key";
  ASSERT_EQ(chmod(key.c_str(), 0644), 0);
  EXPECT_TRUE((*server)->Refresh().ok());
  EXPECT_THAT(std::string((*server)->Refresh().message()), HasSubstr("chmod 600 it"));
  EXPECT_TRUE((*server)->Refresh().ok()) << "it is reported once";
  EXPECT_EQ((*server)->context(), first);
  ASSERT_EQ(chmod(key.c_str(), 0600), 0);
  EXPECT_TRUE((*server)->Refresh().ok());
  EXPECT_NE((*server)->context(), first);
}

TEST_F(TlsFilesTest, ACertificateForTheOtherSideIsRefusedAtTheStart) {
  EXPECT_THAT(std::string(ServerTls::Open(good_, kDefaultDomain).status().message()),
              AllOf(HasSubstr("alice.crt (CN=user/alice) is not a certificate for servers"),
                    HasSubstr("tandem certs issue --host")));
  const TlsFiles controller = certificates_.Files("controller", certificates_.OfServer());
  EXPECT_THAT(std::string(ClientTls::Open(controller).status().message()),
              HasSubstr("controller.crt (CN=controller) is not a certificate for clients"));
}

TEST_F(TlsFilesTest, AListOfTheRevokedIsReadWithTheOthersAndAgainWhenItChanges) {
  TlsFiles files = certificates_.Files("controller", certificates_.OfServer());
  files.revoked = certificates_.folder() + "/revoked";
  EXPECT_THAT(std::string(ServerTls::Open(files, kDefaultDomain).status().message()),
              AllOf(HasSubstr("--tls-revoked: "), HasSubstr("No such file")));
  certificates_.Write("revoked", "", 0644);
  const auto server = ServerTls::Open(files, kDefaultDomain);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_FALSE((*server)->revoked()->Has(alice_, ""));
  const auto refresh = [&] {
    EXPECT_TRUE((*server)->Refresh().ok());
    return std::string((*server)->Refresh().message());
  };
  certificates_.Write("revoked", "user/alice\n", 0644);
  EXPECT_EQ(refresh(), "");
  EXPECT_TRUE((*server)->revoked()->Has(alice_, ""));
  certificates_.Write("revoked", "# nobody\nalice\n", 0644);
  EXPECT_THAT(refresh(), HasSubstr("revoked:2: it is neither user/NAME"));
  EXPECT_TRUE((*server)->revoked()->Has(alice_, "")) << "a mistake lets nobody in again";
}

TEST_F(TlsFilesTest, ADaemonThatDialsShowsWhatTheFilesHoldNow) {
  const auto client = ClientTls::Open(good_);
  ASSERT_TRUE(client.ok()) << client.status();
  const Credential renewed = certificates_.Of(alice_);
  certificates_.Files("alice", renewed);
  EXPECT_EQ((*client)->Current().certificate, renewed.certificate);
  certificates_.Write("alice.crt", "", 0644);
  EXPECT_EQ((*client)->Current().certificate, renewed.certificate);
}

}  // namespace
}  // namespace tandem::tls
