// SPDX-License-Identifier: Apache-2.0
#include "tls/server_tls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"
#include "tls/openssl_handles.h"

namespace tandem::tls {
namespace {

constexpr size_t kMostPeers = 10'000;  // the most certificates that are remembered

absl::Status Refused(const std::string& what, const std::string& file) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", what, ": ", OpenSslReason()));
}

// Checks that OpenSSL, as it is set up here, accepts the files for a server; it may find a key too short.
absl::Status CheckUsable(const TlsTexts& texts, const TlsFiles& files) {
  const ContextHandle context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) {
    return absl::InternalError("OpenSSL: " + OpenSslReason());
  }
  if (SSL_CTX_use_certificate(context.get(), CertificateOf(texts.certificate).get()) != 1) {
    return Refused("the certificate cannot be used", files.certificate);
  }
  if (SSL_CTX_use_PrivateKey(context.get(), KeyOf(texts.key).get()) != 1) {
    return Refused("the key cannot be used", files.key);
  }
  return absl::OkStatus();
}

absl::Status FailedAt(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat(path, ": ",
                                             std::error_code(error, std::generic_category()).message(),
                                             "; the TLS files in use are kept there for gRPC"));
}

// Writes a new file that only this user may read. Its time is `seconds` after 1970: gRPC compares whole
// seconds, so each change gets another one.
absl::Status WritePrivate(const std::string& path, const std::string& content, int64_t seconds) {
  platform::Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) {
    return FailedAt(path, errno);
  }
  for (size_t written = 0; written < content.size();) {
    const ssize_t more = write(file.get(), content.data() + written, content.size() - written);
    if (more < 0 && errno != EINTR) {
      return FailedAt(path, errno);
    }
    written += more > 0 ? static_cast<size_t>(more) : 0;
  }
  const timespec times[] = {{.tv_sec = seconds, .tv_nsec = 0}, {.tv_sec = seconds, .tv_nsec = 0}};
  if (futimens(file.get(), times) != 0) {
    return FailedAt(path, errno);
  }
  // On NFS, or over a quota, a failed write is reported only by close.
  return close(file.Release()) == 0 ? absl::OkStatus() : FailedAt(path, errno);
}

// Checks what the authority's signature does not cover, and returns the client that the certificate names.
absl::StatusOr<Peer> PeerOf(const std::string& pem, const std::string& domain) {
  const absl::StatusOr<Certificate> shown = DescribePem(pem);
  if (!shown.ok()) {
    return absl::UnauthenticatedError("the client's certificate cannot be read");
  }
  if (!shown->for_clients) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate of ", shown->subject,
                     " is not one for clients (its extended key usage lacks clientAuth)"));
  }
  TANDEM_ASSIGN_OR_RETURN(Identity identity, IdentityOf(shown->uris, domain));
  return Peer{.identity = std::move(identity),
              .fingerprints = shown->fingerprints,
              .not_before = shown->not_before,
              .not_after = shown->not_after};
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
  TANDEM_RETURN_IF_ERROR(CheckUsable(texts, files_));
  if (!parent_.empty()) {
    TANDEM_RETURN_IF_ERROR(Publish(texts));
  }
  const absl::MutexLock lock(&mu_);
  certificates_ = absl::StrCat(texts.certificate, texts.ca);
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
  // Certificate and key are replaced one after the other, and do not match in between. So files are read
  // after they have stayed unchanged from one call to the next.
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

absl::Status ServerTls::RefreshCertificate() {
  const bool is_there = parent_.empty() || access(absl::StrCat(folder(), "/", kKey).c_str(), F_OK) == 0;
  own_.pending = own_.pending || !is_there;
  return Refresh(own_, &ServerTls::Load);
}

absl::Status ServerTls::RefreshRevoked() { return Refresh(list_, &ServerTls::LoadRevoked); }

ServerTls::~ServerTls() {
  std::error_code ignored;
  if (!parent_.empty()) {
    std::filesystem::remove_all(parent_, ignored);
  }
}

absl::Status ServerTls::PublishIn(const std::string& parent) {
  std::error_code error;
  std::filesystem::remove_all(parent, error);
  if (error || mkdir(parent.c_str(), 0700) != 0) {
    return FailedAt(parent, error ? error.value() : errno);
  }
  parent_ = parent;
  return Load();
}

absl::Status ServerTls::Publish(const TlsTexts& texts) {
  namespace fs = std::filesystem;
  const std::string name = absl::StrCat(++published_);
  const fs::path made = fs::path(parent_) / name;
  const fs::path link = fs::path(parent_) / "next";
  std::error_code error;
  fs::remove(link, error);
  mkdir(parent_.c_str(), 0700);  // it exists, unless somebody has removed it
  if (mkdir(made.c_str(), 0700) != 0) {
    return FailedAt(made, errno);
  }
  const auto seconds = static_cast<int64_t>(published_);
  absl::Status written = WritePrivate(made / kCa, texts.ca, seconds);
  written.Update(WritePrivate(made / kCertificate, texts.certificate, seconds));
  written.Update(WritePrivate(made / kKey, texts.key, seconds));
  if (written.ok() &&
      (symlink(name.c_str(), link.c_str()) != 0 || rename(link.c_str(), folder().c_str()) != 0)) {
    written = FailedAt(link, errno);
  }
  // Removes the other folder, which is no longer used or could not be completed.
  const std::string used = written.ok() ? name : fs::read_symlink(folder(), error).string();
  for (const fs::directory_entry& entry : fs::directory_iterator(parent_, error)) {
    if (!entry.is_symlink() && entry.path().filename() != used) {
      fs::remove_all(entry.path(), error);
    }
  }
  return written;
}

absl::StatusOr<Peer> ServerTls::WhoIs(const std::string& certificate) const {
  const absl::MutexLock lock(&mu_);
  auto it = peers_.find(certificate);
  if (it == peers_.end()) {
    if (peers_.size() >= kMostPeers) {
      peers_.clear();
    }
    it = peers_.emplace(certificate, PeerOf(certificate, domain_)).first;
  }
  if (it->second.ok() && revoked_->Has(it->second->identity, it->second->fingerprints)) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate of ", ToText(it->second->identity),
                     " was revoked by the operator of this controller; ask for another"));
  }
  return it->second;
}

std::shared_ptr<const RevokedList> ServerTls::revoked() const {
  const absl::MutexLock lock(&mu_);
  return revoked_;
}

std::string ServerTls::certificates() const {
  const absl::MutexLock lock(&mu_);
  return certificates_;
}

absl::Time ServerTls::not_after() const {
  const absl::MutexLock lock(&mu_);
  return not_after_;
}

}  // namespace tandem::tls
