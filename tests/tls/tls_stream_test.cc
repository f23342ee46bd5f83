// SPDX-License-Identifier: Apache-2.0
#include "tls/tls_stream.h"

#include <gmock/gmock.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>

#include "tests/tls/certificates.h"
#include "tls/openssl_handles.h"
#include "tls/server_tls.h"

namespace tandem::tls {
namespace {

using ::testing::HasSubstr;

// A server's end and OpenSSL as its client, over a pair of sockets.
class TlsStreamTest : public ::testing::Test {
 protected:
  TlsStreamTest() {
    std::signal(SIGPIPE, SIG_IGN);
    auto server =
        ServerTls::Open(certificates_.Files("controller", certificates_.OfServer()), kDefaultDomain);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~TlsStreamTest() override {
    for (const int fd : ends_) {
      close(fd);
    }
  }

  // Who the server takes a client with this credential for. nullopt: one without.
  absl::StatusOr<Peer> Meet(const std::optional<Credential>& credential) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends_.data()), 0);
    stream_.emplace(*server_, ends_[0]);
    const ContextHandle context(SSL_CTX_new(TLS_client_method()));
    if (credential.has_value()) {
      const BioHandle certificate_text = BioOf(credential->certificate);
      const CertificateHandle certificate(
          PEM_read_bio_X509(certificate_text.get(), nullptr, nullptr, nullptr));
      const BioHandle key_text = BioOf(credential->key);
      const KeyHandle key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
      EXPECT_EQ(SSL_CTX_use_certificate(context.get(), certificate.get()), 1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey(context.get(), key.get()), 1);
    }
    client_ = SslHandle(SSL_new(context.get()));
    SSL_set_fd(client_.get(), ends_[1]);
    SSL_set_connect_state(client_.get());
    for (int i = 0; i < 100; ++i) {
      SSL_do_handshake(client_.get());
      const TlsStream::Step step = stream_->Handshake();
      EXPECT_NE(step, TlsStream::Step::kFailed);
      if (step == TlsStream::Step::kDone) {
        return stream_->Peer();
      }
    }
    return absl::InternalError("the handshake does not end");
  }
  std::string WhyNot(const std::optional<Credential>& credential) {
    return std::string(Meet(credential).status().message());
  }

  Certificates certificates_;
  const Identity alice_{Role::kUser, "alice"};
  std::unique_ptr<ServerTls> server_;
  std::array<int, 2> ends_{-1, -1};
  std::optional<TlsStream> stream_;
  SslHandle client_;
};

TEST_F(TlsStreamTest, KnowsItsClientByTheCertificateAndCarriesBytesBothWays) {
  const absl::StatusOr<Peer> peer = Meet(certificates_.Of(alice_));
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->identity, alice_);
  std::array<char, 16> buffer{};
  errno = 0;
  EXPECT_EQ(stream_->Read(buffer.data(), buffer.size()), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(SSL_write(client_.get(), "question", 8), 8);
  EXPECT_EQ(stream_->Read(buffer.data(), buffer.size()), 8);
  EXPECT_EQ(stream_->Write("answer", 6), 6);
  EXPECT_EQ(SSL_read(client_.get(), buffer.data(), static_cast<int>(buffer.size())), 6);
  SSL_shutdown(client_.get());
  EXPECT_EQ(stream_->Read(buffer.data(), buffer.size()), 0) << "the client has ended it";
}

TEST_F(TlsStreamTest, OneWithoutACertificateIsNobody) {
  EXPECT_THAT(WhyNot(std::nullopt), HasSubstr("no client certificate was given"));
}

TEST_F(TlsStreamTest, OneOfAnotherAuthorityIsNobody) {
  const Certificates others;
  EXPECT_THAT(WhyNot(others.Of(alice_)), HasSubstr("the certificate of CN=user/alice is not signed by a CA "
                                                   "that this controller trusts (its issuer is CN=Test CA)"));
}

TEST_F(TlsStreamTest, OneThatSignedItsOwnIsNobody) {
  EXPECT_THAT(WhyNot(*MakeAuthority("eve", absl::Now() - absl::Hours(1), absl::Now() + absl::Hours(1))),
              HasSubstr("is not signed by a CA"));
}

TEST_F(TlsStreamTest, OneWhoseCertificateIsNotValidNowIsNobody) {
  EXPECT_THAT(WhyNot(certificates_.Of(alice_, -absl::Hours(3), -absl::Hours(2))), HasSubstr("expired on "));
}

TEST_F(TlsStreamTest, OneWhoseCertificateIsNotValidYetIsNobody) {
  EXPECT_THAT(WhyNot(certificates_.Of(alice_, absl::Hours(2), absl::Hours(3))),
              HasSubstr("is not valid before "));
}

TEST_F(TlsStreamTest, AServersCertificateIsNotOneForClients) {
  EXPECT_THAT(WhyNot(certificates_.OfServer()), HasSubstr("is not one for clients"));
}

TEST_F(TlsStreamTest, OneThatIsSignedByAUsersCertificateIsNobody) {
  // Alice's key signs a certificate for an admin, and shows her own behind it.
  const Credential eve = *Issue(certificates_.Of(alice_), {.common_name = "eve",
                                                           .uri = "spiffe://tandem.local/admin/eve",
                                                           .hosts = {},
                                                           .not_before = absl::Now() - absl::Hours(1),
                                                           .not_after = absl::Now() + absl::Hours(1)});
  EXPECT_FALSE(Meet(eve).ok());
}

TEST_F(TlsStreamTest, OneOfNoIdentityIsNobody) {
  const Credential someone = *Issue(certificates_.authority(), {.common_name = "admin/eve",
                                                                .uri = "https://example.org/eve",
                                                                .hosts = {},
                                                                .not_before = absl::Now() - absl::Hours(1),
                                                                .not_after = absl::Now() + absl::Hours(1)});
  EXPECT_THAT(WhyNot(someone), HasSubstr("has no identity in this cluster"));
}

}  // namespace
}  // namespace tandem::tls
