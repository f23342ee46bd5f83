// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tls/tls_files.h"

namespace tandem::tls {

// The credentials of a daemon that dials: its files are read at each use, so that new files are used without
// a restart. Thread-safe.
class ClientTls {
 public:
  // Errors are those of ReadTlsFiles, or say that the certificate is not one for clients.
  static absl::StatusOr<std::unique_ptr<ClientTls>> Open(const TlsFiles& files);

  // Returns what the files hold now or, if they cannot be used, what they held before; the log then says why.
  TlsTexts Current() ABSL_LOCKS_EXCLUDED(mu_);
  const TlsFiles& files() const { return files_; }

 private:
  ClientTls(const TlsFiles& files, TlsTexts texts) : files_(files), last_(std::move(texts)) {}

  const TlsFiles files_;
  absl::Mutex mu_;
  TlsTexts last_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::tls
