// SPDX-License-Identifier: Apache-2.0
#include "tls/server_tls.h"

#include <openssl/pem.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"
#include "tls/openssl_handles.h"
#include "tls/tls_stream.h"

namespace tandem::tls {
namespace {

absl::Status Refused(const std::string& what, const std::string& file) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", what, ": ", OpenSslReason()));
}

// The leaf and those behind it.
absl::Status UseChain(SSL_CTX* context, const std::string& pem, const std::string& file) {
  const BioHandle in = BioOf(pem);
  const CertificateHandle leaf(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
  if (SSL_CTX_use_certificate(context, leaf.get()) != 1) {
    return Refused("the certificate cannot be used", file);
  }
  while (X509* next = PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr)) {
    SSL_CTX_add0_chain_cert(context, next);
  }
  OpenSslReason();  // that there is no more
  return absl::OkStatus();
}

void Believe(SSL_CTX* context, const std::string& pem) {
  const BioHandle in = BioOf(pem);
  while (const CertificateHandle ca{PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr)}) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca.get());
  }
  OpenSslReason();
}

// gRPC speaks HTTP/2 only, and insists that both sides have said so.
int ChooseProtocol(SSL* /*ssl*/, const unsigned char** chosen, unsigned char* size,
                   const unsigned char* offered, unsigned int offered_size, void* /*data*/) {
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  unsigned char* out = nullptr;
  if (SSL_select_next_proto(&out, size, kHttp2, sizeof(kHttp2), offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *chosen = out;
  return SSL_TLSEXT_ERR_OK;
}

absl::StatusOr<ContextHandle> MakeContext(const TlsTexts& texts, const TlsFiles& files) {
  ContextHandle context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) {
    return absl::InternalError("OpenSSL: " + OpenSslReason());
  }
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context.get(), ChooseProtocol, nullptr);
  TlsStream::AskForCertificates(context.get());
  TANDEM_RETURN_IF_ERROR(UseChain(context.get(), texts.certificate, files.certificate));
  const BioHandle key_text = BioOf(texts.key);
  const KeyHandle key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return Refused("the key cannot be used", files.key);
  }
  Believe(context.get(), texts.ca);
  return context;
}

absl::StatusOr<RevokedList> ReadRevoked(const std::string& file) {
  if (file.empty()) {
    return RevokedList();
  }
  const absl::StatusOr<std::string> text = platform::ReadAtMost(platform::SystemFiles(), file, kMostPemBytes);
  absl::StatusOr<RevokedList> out =
      text.ok() ? RevokedList::Parse(*text, file) : absl::StatusOr<RevokedList>(text.status());
  return out.ok()
             ? std::move(out)
             : absl::Status(out.status().code(), absl::StrCat("--tls-revoked: ", out.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerTls>> ServerTls::Open(const TlsFiles& files, const std::string& domain) {
  std::unique_ptr<ServerTls> tls(new ServerTls(files, domain));
  tls->own_.stamp = StampOf(tls->own_.files);
  tls->list_.stamp = StampOf(tls->list_.files);
  TANDEM_RETURN_IF_ERROR(tls->Load());
  TANDEM_RETURN_IF_ERROR(tls->LoadRevoked());
  return tls;
}

absl::Status ServerTls::Load() {
  TANDEM_ASSIGN_OR_RETURN(const TlsTexts texts, ReadValidTlsFiles(files_, absl::Now()));
  if (!texts.own.for_servers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-cert: ", files_.certificate, " (", texts.own.subject,
                     ") is not a certificate for servers (its extended key usage lacks serverAuth); give the "
                     "controller's, as `tandem certs issue --host` makes it"));
  }
  TANDEM_ASSIGN_OR_RETURN(ContextHandle context, MakeContext(texts, files_));
  const absl::MutexLock lock(&mu_);
  context_ = std::shared_ptr<SSL_CTX>(context.release(), SSL_CTX_free);
  not_after_ = texts.own.not_after;
  return absl::OkStatus();
}

absl::Status ServerTls::LoadRevoked() {
  TANDEM_ASSIGN_OR_RETURN(RevokedList revoked, ReadRevoked(files_.revoked));
  const absl::MutexLock lock(&mu_);
  revoked_ = std::make_shared<const RevokedList>(std::move(revoked));
  return absl::OkStatus();
}

std::string ServerTls::StampOf(const std::vector<std::string>& files) {
  std::string out;
  for (const std::string& file : files) {
    struct stat info {};
    if (stat(file.c_str(), &info) == 0) {
      absl::StrAppend(&out, info.st_dev, " ", info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec, ".",
                      info.st_mtim.tv_nsec, ";");
    }
  }
  return out;
}

absl::Status ServerTls::Refresh(Watched& watched, absl::Status (ServerTls::*load)()) {
  std::string stamp = StampOf(watched.files);
  // Certificate and key are replaced one after the other, and do not fit together in between: files are taken
  // when they have stood still for a call.
  if (stamp != watched.stamp && stamp != watched.seen) {
    watched.seen = std::move(stamp);
    return absl::OkStatus();
  }
  watched.pending = watched.pending || stamp != watched.stamp;
  watched.stamp = std::move(stamp);
  watched.seen.clear();
  if (!watched.pending) {
    return absl::OkStatus();
  }
  const absl::Status status = (this->*load)();
  watched.pending = !status.ok();
  const bool is_logged = status.message() == watched.logged;
  watched.logged = std::string(status.message());
  return is_logged ? absl::OkStatus() : status;
}

absl::Status ServerTls::Refresh() {
  // Each by itself: the list applies even where the new certificate cannot be used.
  const absl::Status list = Refresh(list_, &ServerTls::LoadRevoked);
  const absl::Status own = Refresh(own_, &ServerTls::Load);
  return list.ok() || own.ok() ? (list.ok() ? own : list)
                               : absl::Status(list.code(), absl::StrCat(list.message(), "; ", own.message()));
}

std::shared_ptr<ssl_ctx_st> ServerTls::context() const {
  const absl::MutexLock lock(&mu_);
  return context_;
}

std::shared_ptr<const RevokedList> ServerTls::revoked() const {
  const absl::MutexLock lock(&mu_);
  return revoked_;
}

absl::Time ServerTls::not_after() const {
  const absl::MutexLock lock(&mu_);
  return not_after_;
}

}  // namespace tandem::tls
