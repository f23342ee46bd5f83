// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tls/certificate.h"
#include "tls/identity.h"
#include "tls/revoked_list.h"
#include "tls/tls_files.h"

namespace tandem::tls {

// A client, as its certificate describes it.
struct Peer {
  Identity identity;
  Fingerprints fingerprints;
  absl::Time not_before;
  absl::Time not_after;
};

// The credentials of a server, and its check of the certificates of clients. gRPC does TLS and reads the
// server's certificate, key and authorities from files; an empty file, or a key that does not belong to the
// certificate, would abort the process. So gRPC reads copies in a folder of the server's own, into which the
// user's files are copied, all three at once, only after they have been checked. Thread-safe. Call each of
// the two Refresh functions from a thread of its own: a slow disk with the certificate then delays no
// revocation.
class ServerTls {
 public:
  // Names of the files in folder().
  static constexpr char kCa[] = "ca.crt";
  static constexpr char kCertificate[] = "server.crt";
  static constexpr char kKey[] = "server.key";

  // `domain` is the domain of its clients' identities (identity.h). Errors are those of ReadTlsFiles, and one
  // for a certificate that is not for servers.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Open(const TlsFiles& files, const std::string& domain);

  // Removes the published copies, so that a backup of a stopped server holds no key.
  ~ServerTls();
  ServerTls(const ServerTls&) = delete;
  ServerTls& operator=(const ServerTls&) = delete;

  // Creates the folder `parent`, which only this user may enter, in place of an existing one, and publishes
  // the files in it; from then on folder() has the files in use. Errors name the path.
  absl::Status PublishIn(const std::string& parent) ABSL_LOCKS_EXCLUDED(mu_);
  // The folder for gRPC, after PublishIn. It is a symbolic link, so that all files change at once.
  std::string folder() const { return parent_ + "/current"; }

  // Load files that have changed: RefreshCertificate the certificates and the key, which it publishes in
  // folder(); RefreshRevoked the list of revoked certificates. If new files cannot be used, for example
  // because a certificate is not valid yet, the previous ones stay in use, each call tries again, and one
  // call returns the error, which names the file. RefreshCertificate also publishes again if the files in
  // folder() were removed. Call each about once a second: files are loaded once they have not changed between
  // two calls.
  absl::Status RefreshCertificate() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RefreshRevoked() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the client with this certificate (PEM), whose signature and dates gRPC has checked. Returns
  // Unauthenticated, with a sentence for the client, if the certificate is not for clients, has no identity
  // of the domain, or is revoked. Ignores the dates, since a connection may last longer than the certificate.
  absl::StatusOr<Peer> WhoIs(const std::string& certificate) const ABSL_LOCKS_EXCLUDED(mu_);

  // The list of revoked identities and certificates. The pointer changes whenever the file is read again.
  std::shared_ptr<const RevokedList> revoked() const ABSL_LOCKS_EXCLUDED(mu_);
  // The server's certificate and those of the authorities (PEM) that are in use, and the time at which the
  // server's expires.
  std::string certificates() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time not_after() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Files that are loaded together. Used by the thread that calls Open, then only by the thread that calls
  // their Refresh function.
  struct Watched {
    std::vector<std::string> files;
    std::string stamp = {};   // of the files in use
    std::string seen = {};    // of the files at the last call, if they differ
    bool pending = false;     // the files of `stamp` could not be loaded yet
    std::string logged = {};  // the last error returned
  };

  ServerTls(const TlsFiles& files, std::string domain)
      : files_(files),
        domain_(std::move(domain)),
        own_{.files = {files.ca, files.certificate, files.key}},
        list_{.files = {files.revoked}} {}
  absl::Status Load() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status LoadRevoked() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Refresh(Watched& watched, absl::Status (ServerTls::*load)());
  absl::Status Publish(const TlsTexts& texts);
  // Describes the files (inode, size, time): differs after any of them has changed.
  static std::string StampOf(const std::vector<std::string>& files);

  const TlsFiles files_;
  const std::string domain_;
  Watched own_;
  Watched list_;
  std::string parent_;      // empty: nothing has been published yet
  uint64_t published_ = 0;  // how many times
  mutable absl::Mutex mu_;
  std::shared_ptr<const RevokedList> revoked_ ABSL_GUARDED_BY(mu_);
  std::string certificates_ ABSL_GUARDED_BY(mu_);
  absl::Time not_after_ ABSL_GUARDED_BY(mu_);
  // Clients by certificate (PEM): a cache, because every call of a client needs its identity and parsing is
  // slow.
  mutable std::map<std::string, absl::StatusOr<Peer>> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::tls
