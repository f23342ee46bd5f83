// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tls/tls_files.h"

namespace tandem::tls {

// The credentials of a daemon that connects to another. The files are read at each use, so new files take
// effect without a restart. Thread-safe.
class ClientTls {
 public:
  // Errors are those of ReadTlsFiles, and one for a certificate that is not for clients.
  static absl::StatusOr<std::unique_ptr<ClientTls>> Open(const TlsFiles& files);

  // Returns the present content of the files. If it cannot be used, logs why and returns the last content
  // that could.
  TlsTexts Current() ABSL_LOCKS_EXCLUDED(mu_);
  const TlsFiles& files() const { return files_; }

 private:
  ClientTls(const TlsFiles& files, TlsTexts texts) : files_(files), last_(std::move(texts)) {}

  const TlsFiles files_;
  absl::Mutex mu_;
  TlsTexts last_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::tls
