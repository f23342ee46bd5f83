// SPDX-License-Identifier: Apache-2.0
#include "tls/tls_stream.h"

#include <openssl/err.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "platform/status_macros.h"
#include "tls/certificate.h"
#include "tls/openssl_handles.h"
#include "tls/server_tls.h"
#include "tls/tls_files.h"

namespace tandem::tls {
namespace {

// Where a connection keeps the first thing that is wrong with its client's certificate: OpenSSL's own verdict
// is that of the last certificate of the chain.
int VerdictIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

// Lets everything through, and keeps the first complaint.
int KeepFirstComplaint(int good, X509_STORE_CTX* chain) {
  auto* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx()));
  if (good == 0 && SSL_get_ex_data(ssl, VerdictIndex()) == nullptr) {
    SSL_set_ex_data(ssl, VerdictIndex(),
                    reinterpret_cast<void*>(static_cast<intptr_t>(X509_STORE_CTX_get_error(chain))));
  }
  return 1;
}

std::string WhyRefused(long verdict, const Certificate& peer) {
  const std::string whose = absl::StrCat("the certificate of ", peer.subject, " ");
  switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID: {
      const std::string why = WhyNotValid(peer, absl::Now());
      return absl::StrCat(whose, why.empty() ? "is signed by a CA certificate that is not valid now" : why,
                          "; renew it with `tandem certs issue --renew`, or ask your operator");
    }
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return absl::StrCat(whose, "is not signed by a CA that this controller trusts (its issuer is ",
                          peer.issuer, "); use one of this cluster");
    case X509_V_ERR_INVALID_PURPOSE:
      return absl::StrCat(whose, "is not one for clients (its extended key usage lacks clientAuth)");
    default:
      return absl::StrCat(whose, "is refused: ", X509_verify_cert_error_string(verdict));
  }
}

}  // namespace

void TlsStream::AskForCertificates(ssl_ctx_st* context) {
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, KeepFirstComplaint);
}

TlsStream::TlsStream(const ServerTls& tls, int fd) : tls_(tls), ssl_(SSL_new(tls.context().get()), SSL_free) {
  SSL_set_fd(ssl_.get(), fd);
  SSL_set_accept_state(ssl_.get());
}

TlsStream::~TlsStream() { ERR_clear_error(); }

TlsStream::Step TlsStream::Handshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    return Step::kDone;
  }
  const int error = SSL_get_error(ssl_.get(), result);
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? Step::kWait : Step::kFailed;
}

absl::StatusOr<tls::Peer> TlsStream::Peer() const {
  X509* certificate = SSL_get0_peer_certificate(ssl_.get());
  if (certificate == nullptr) {
    return absl::UnauthenticatedError(
        "no client certificate was given, and this controller requires one; give --tls-cert and "
        "--tls-key (or "
        "TANDEM_TLS_CERT and TANDEM_TLS_KEY)");
  }
  const Certificate peer = Describe(certificate);
  auto verdict = static_cast<long>(reinterpret_cast<intptr_t>(SSL_get_ex_data(ssl_.get(), VerdictIndex())));
  if (verdict == X509_V_OK) {
    verdict = SSL_get_verify_result(ssl_.get());
  }
  if (verdict != X509_V_OK) {
    return absl::UnauthenticatedError(WhyRefused(verdict, peer));
  }
  TANDEM_ASSIGN_OR_RETURN(Identity identity, IdentityOf(peer.uris, tls_.domain()));
  if (tls_.revoked()->Has(identity, peer.fingerprint)) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate of ", peer.subject,
                     " was revoked by the operator of this controller; ask for another"));
  }
  return tls::Peer{
      .identity = std::move(identity), .fingerprint = peer.fingerprint, .not_after = peer.not_after};
}

ssize_t TlsStream::Outcome(int result) {
  if (result > 0) {
    return result;
  }
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_ZERO_RETURN) {
    return 0;
  }
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
  return -1;
}

ssize_t TlsStream::Read(char* buffer, size_t size) {
  ERR_clear_error();
  return Outcome(SSL_read(ssl_.get(), buffer, static_cast<int>(size)));
}

ssize_t TlsStream::Write(const char* bytes, size_t size) {
  ERR_clear_error();
  const ssize_t written = Outcome(SSL_write(ssl_.get(), bytes, static_cast<int>(size)));
  if (written == 0) {
    errno = ECONNRESET;
    return -1;
  }
  return written;
}

void TlsStream::Close() {
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

}  // namespace tandem::tls
