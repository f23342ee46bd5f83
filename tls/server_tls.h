// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tls/revoked_list.h"
#include "tls/tls_files.h"

struct ssl_ctx_st;

namespace tandem::tls {

// What a server shows its clients, and whom it believes: TLS 1.2 and 1.3, HTTP/2, a certificate asked of
// every client, no resumption (each connection proves its identity again). Files that change are taken for
// the connections that come; those that are open go on. Thread-safe, but for Refresh, which one thread calls.
class ServerTls {
 public:
  // `domain`: of the identities that it gives (identity.h). Errors are those of ReadTlsFiles.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Open(const TlsFiles& files, const std::string& domain);

  // Takes files that have changed: the certificates and the key together, the list of the revoked by itself.
  // Where they cannot be taken, as where a certificate is not valid yet, what was there goes on, they are
  // tried again at each call, and an error, which names the file, is returned once.
  // Call about once a second: files are taken at the second call after the last of them has changed.
  absl::Status Refresh() ABSL_LOCKS_EXCLUDED(mu_);

  // For the next connection.
  std::shared_ptr<ssl_ctx_st> context() const ABSL_LOCKS_EXCLUDED(mu_);
  // Who gets in no more. Another pointer whenever the list was read again.
  std::shared_ptr<const RevokedList> revoked() const ABSL_LOCKS_EXCLUDED(mu_);
  // When its own certificate expires.
  absl::Time not_after() const ABSL_LOCKS_EXCLUDED(mu_);
  const std::string& domain() const { return domain_; }

 private:
  // Files that are taken together. Of the caller of Open and Refresh.
  struct Watched {
    std::vector<std::string> files;
    std::string stamp = {};   // of what is used
    std::string seen = {};    // of what is there, where it is another
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
  // Changes with any of the files.
  static std::string StampOf(const std::vector<std::string>& files);

  const TlsFiles files_;
  const std::string domain_;
  Watched own_;
  Watched list_;
  mutable absl::Mutex mu_;
  std::shared_ptr<ssl_ctx_st> context_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const RevokedList> revoked_ ABSL_GUARDED_BY(mu_);
  absl::Time not_after_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::tls
