// SPDX-License-Identifier: Apache-2.0
#include "tls/client_tls.h"

#include <utility>

#include "absl/time/clock.h"
#include "platform/log.h"

namespace tandem::tls {

absl::StatusOr<std::unique_ptr<ClientTls>> ClientTls::Open(const TlsFiles& files) {
  absl::StatusOr<TlsTexts> texts = ReadValidTlsFiles(files, absl::Now());
  if (!texts.ok()) {
    return texts.status();
  }
  return std::unique_ptr<ClientTls>(new ClientTls(files, *std::move(texts)));
}

TlsTexts ClientTls::Current() {
  absl::StatusOr<TlsTexts> texts = ReadValidTlsFiles(files_, absl::Now());
  if (!texts.ok()) {
    platform::Log(platform::LogLevel::kError, "the TLS files cannot be used; those from before go on",
                  {{"error", std::string(texts.status().message())}});
  }
  const absl::MutexLock lock(&mu_);
  if (texts.ok()) {
    last_ = *std::move(texts);
  }
  return last_;
}

}  // namespace tandem::tls
