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

// A client by its certificate.
struct Peer {
  Identity identity;
  Fingerprints fingerprints;
  absl::Time not_before;
  absl::Time not_after;
};

// The credentials of a server, and its check of those of clients. gRPC speaks the TLS and reads the server's
// certificate, key and authorities from files; a file that is empty, or a key of another certificate, would
// end it. So it reads a folder of the server's own, which gets the user's files only after they have been
// checked, all three at once. Thread-safe; of the two Refresh functions each has a thread of its own, so that
// a disk which holds up the new certificate does not hold up the revoked ones.
class ServerTls {
 public:
  // Names of the files in folder().
  static constexpr char kCa[] = "ca.crt";
  static constexpr char kCertificate[] = "server.crt";
  static constexpr char kKey[] = "server.key";

  // `domain`: of the identities that it gives (identity.h). Errors are those of ReadTlsFiles.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Open(const TlsFiles& files, const std::string& domain);

  // Removes what it has published: backups of a stopped server hold no key.
  ~ServerTls();
  ServerTls(const ServerTls&) = delete;
  ServerTls& operator=(const ServerTls&) = delete;

  // Makes `parent`, a folder that this user alone may enter, and replaces what is in it; from then on
  // folder() holds the files in use. Errors name the path.
  absl::Status PublishIn(const std::string& parent) ABSL_LOCKS_EXCLUDED(mu_);
  // After PublishIn: a symbolic link, so that all files change at once.
  std::string folder() const { return parent_ + "/current"; }

  // Take files that have changed: the certificates and the key together, which are published in folder(); and
  // the list of revoked certificates. If they cannot be taken, for example because a certificate is not valid
  // yet, the previous ones stay in use, each call tries again, and an error, which names the file, is
  // returned once. The first also publishes again what was removed from folder(). Call each about once a
  // second: files are taken at the second call after the last of them has changed.
  absl::Status RefreshCertificate() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RefreshRevoked() ABSL_LOCKS_EXCLUDED(mu_);

  // The client whose certificate (PEM) an authority of folder() has signed. Unauthenticated, with a sentence
  // for the client, if the certificate is not one for clients, has no identity of the domain, or is revoked.
  // Ignores its dates, which a connection may outlive.
  absl::StatusOr<Peer> WhoIs(const std::string& certificate) const ABSL_LOCKS_EXCLUDED(mu_);

  // The revoked names and certificates. The pointer changes whenever the list is read again.
  std::shared_ptr<const RevokedList> revoked() const ABSL_LOCKS_EXCLUDED(mu_);
  // Its own certificate and those of the authorities (PEM), as they are in use; and when its own expires.
  std::string certificates() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time not_after() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Files that are taken together. Used by the caller of Open, then by that of their Refresh function.
  struct Watched {
    std::vector<std::string> files;
    std::string stamp = {};   // of what is used
    std::string seen = {};    // of what is there, if that differs
    bool pending = false;     // those of `stamp` could not be taken yet
    std::string logged = {};  // why
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
  // Changes with any of the files.
  static std::string StampOf(const std::vector<std::string>& files);

  const TlsFiles files_;
  const std::string domain_;
  Watched own_;
  Watched list_;
  std::string parent_;      // empty: nothing is published yet
  uint64_t published_ = 0;  // times
  mutable absl::Mutex mu_;
  std::shared_ptr<const RevokedList> revoked_ ABSL_GUARDED_BY(mu_);
  std::string certificates_ ABSL_GUARDED_BY(mu_);
  absl::Time not_after_ ABSL_GUARDED_BY(mu_);
  // Identities by certificate: each call of a client needs one, and reading a certificate takes a while.
  mutable std::map<std::string, absl::StatusOr<Peer>> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::tls
