// SPDX-License-Identifier: Apache-2.0
#include "tls/tls_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "tests/platform/temporary_folder.h"
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

  // With the files of this credential, which it has published.
  std::unique_ptr<ServerTls> OpenServer(const Credential& credential) {
    auto server = ServerTls::Open(certificates_.Files("controller", credential), kDefaultDomain);
    EXPECT_TRUE(server.ok()) << server.status();
    EXPECT_TRUE((*server)->PublishIn(published_.path() + "/tls").ok());
    return *std::move(server);
  }
  // All that gRPC reads.
  static std::string Published(const ServerTls& server) {
    std::string out;
    for (const char* name : {ServerTls::kCa, ServerTls::kCertificate, ServerTls::kKey}) {
      std::ifstream file(server.folder() + "/" + name);
      out.append(std::istreambuf_iterator<char>(file), {});
    }
    return out;
  }

  const platform::TemporaryFolder published_;
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

TEST_F(TlsFilesTest, RefusalsNameTheFile) {
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

TEST_F(TlsFilesTest, ExpiredCertificateIsRefusedWithItsDate) {
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

TEST_F(TlsFilesTest, ServerTakesGoodNewFiles) {
  const auto server = OpenServer(certificates_.OfServer());
  const std::string first = Published(*server);
  const std::string used = server->certificates();
  const Credential next = certificates_.OfServer();
  certificates_.Files("controller", next);
  EXPECT_TRUE(server->RefreshCertificate().ok());
  EXPECT_EQ(Published(*server), first) << "they may still be changing";
  EXPECT_EQ(server->certificates(), used);
  EXPECT_TRUE(server->RefreshCertificate().ok());
  EXPECT_EQ(server->certificates(), next.certificate + certificates_.authority().certificate)
      << "whatever their dates";
  EXPECT_EQ(Published(*server), certificates_.authority().certificate + next.certificate + next.key);

  certificates_.Write("controller.key", "no key\n", 0600);
  EXPECT_TRUE(server->RefreshCertificate().ok());
  EXPECT_THAT(std::string(server->RefreshCertificate().message()),
              HasSubstr("controller.key holds no private key"));
  EXPECT_TRUE(server->RefreshCertificate().ok()) << "it is reported once";
  EXPECT_EQ(Published(*server), certificates_.authority().certificate + next.certificate + next.key);
}

// gRPC reads a folder in the middle of a change, and ends the process where a file of it is empty.
TEST_F(TlsFilesTest, PublishedFilesArePrivate) {
  const auto server = OpenServer(certificates_.OfServer());
  const std::filesystem::path parent = std::filesystem::path(server->folder()).parent_path();
  const auto mode = [](const std::filesystem::path& path) {
    return static_cast<unsigned>(std::filesystem::status(path).permissions());
  };
  EXPECT_EQ(mode(parent), 0700U);
  EXPECT_EQ(mode(server->folder() + "/server.key"), 0600U);
  for (int i = 0; i < 3; ++i) {
    const std::filesystem::path before = std::filesystem::read_symlink(server->folder());
    certificates_.Files("controller", certificates_.OfServer());
    EXPECT_TRUE(server->RefreshCertificate().ok());
    EXPECT_TRUE(server->RefreshCertificate().ok());
    EXPECT_NE(std::filesystem::read_symlink(server->folder()), before);
    EXPECT_FALSE(std::filesystem::exists(parent / before)) << "keys that are not used any more are removed";
  }
}

TEST_F(TlsFilesTest, RemovedPublishedFilesReturn) {
  const auto server = OpenServer(certificates_.OfServer());
  const std::string first = Published(*server);
  for (const std::string& removed : {published_.path() + "/tls", server->folder() + "/server.key"}) {
    std::filesystem::remove_all(removed);
    EXPECT_TRUE(server->RefreshCertificate().ok());
    EXPECT_EQ(Published(*server), first) << removed;
  }
}

TEST_F(TlsFilesTest, AServerKnowsItsClientsByTheirCertificates) {
  const auto server = OpenServer(certificates_.OfServer());
  const absl::StatusOr<Peer> alice = server->WhoIs(certificates_.Of(alice_).certificate);
  ASSERT_TRUE(alice.ok()) << alice.status();
  EXPECT_EQ(alice->identity, alice_);
  const auto why_not = [&](const std::string& certificate) {
    const absl::Status status = server->WhoIs(certificate).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(why_not(certificates_.OfServer().certificate), HasSubstr("is not one for clients"));
  EXPECT_THAT(why_not("no certificate"), HasSubstr("cannot be read"));
  const Credential someone = *Issue(certificates_.authority(), {.common_name = "admin/eve",
                                                                .uri = "https://example.org/eve",
                                                                .hosts = {},
                                                                .not_before = absl::Now() - absl::Hours(1),
                                                                .not_after = absl::Now() + absl::Hours(1)});
  EXPECT_THAT(why_not(someone.certificate), HasSubstr("has no identity in this cluster"));
}

TEST_F(TlsFilesTest, RefusedFilesAreRetried) {
  const auto server = OpenServer(certificates_.OfServer());
  const std::string first = Published(*server);
  // A new certificate that cannot be used yet, for a reason that no change of the file ends: here its mode,
  // elsewhere a clock that is behind the authority's.
  certificates_.Files("controller", certificates_.OfServer());
  const std::string key = certificates_.folder() + "/controller.key";
  ASSERT_EQ(chmod(key.c_str(), 0644), 0);
  EXPECT_TRUE(server->RefreshCertificate().ok());
  EXPECT_THAT(std::string(server->RefreshCertificate().message()), HasSubstr("chmod 600 it"));
  EXPECT_TRUE(server->RefreshCertificate().ok()) << "it is reported once";
  EXPECT_EQ(Published(*server), first);
  ASSERT_EQ(chmod(key.c_str(), 0600), 0);
  EXPECT_TRUE(server->RefreshCertificate().ok());
  EXPECT_NE(Published(*server), first);
}

TEST_F(TlsFilesTest, CertificateForTheOtherSideIsRefused) {
  EXPECT_THAT(std::string(ServerTls::Open(good_, kDefaultDomain).status().message()),
              AllOf(HasSubstr("alice.crt (CN=user/alice) is not a certificate for servers"),
                    HasSubstr("tandem certs issue --host")));
  const TlsFiles controller = certificates_.Files("controller", certificates_.OfServer());
  EXPECT_THAT(std::string(ClientTls::Open(controller).status().message()),
              HasSubstr("controller.crt (CN=controller) is not a certificate for clients"));
}

TEST_F(TlsFilesTest, AChangedListOfRevocationsIsReadAgain) {
  TlsFiles files = certificates_.Files("controller", certificates_.OfServer());
  files.revoked = certificates_.folder() + "/revoked";
  EXPECT_THAT(std::string(ServerTls::Open(files, kDefaultDomain).status().message()),
              AllOf(HasSubstr("--tls-revoked: "), HasSubstr("No such file")));
  certificates_.Write("revoked", "", 0644);
  const auto server = ServerTls::Open(files, kDefaultDomain);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_FALSE((*server)->revoked()->Has(alice_, nullptr));
  const auto refresh = [&] {
    EXPECT_TRUE((*server)->RefreshRevoked().ok());
    return std::string((*server)->RefreshRevoked().message());
  };
  certificates_.Write("revoked", "user/alice\n", 0644);
  EXPECT_EQ(refresh(), "");
  EXPECT_TRUE((*server)->revoked()->Has(alice_, nullptr));
  certificates_.Write("revoked", "# nobody\nalice\n", 0644);
  EXPECT_THAT(refresh(), HasSubstr("revoked:2: it is neither user/NAME"));
  EXPECT_TRUE((*server)->revoked()->Has(alice_, nullptr)) << "a mistake lets nobody in again";
}

TEST_F(TlsFilesTest, DiallingUsesTheCurrentFiles) {
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
