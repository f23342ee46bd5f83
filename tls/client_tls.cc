// SPDX-License-Identifier: Apache-2.0
#include "tls/client_tls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::tls {
namespace {

absl::StatusOr<TlsTexts> Read(const TlsFiles& files) {
  absl::StatusOr<TlsTexts> texts = ReadValidTlsFiles(files, absl::Now());
  if (texts.ok() && !texts->own.for_clients) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--tls-cert: ", files.certificate, " (", texts->own.subject,
        ") is not a certificate for clients (its extended key usage lacks clientAuth); give this "
        "one's own, as `tandem certs issue` makes it"));
  }
  return texts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClientTls>> ClientTls::Open(const TlsFiles& files) {
  TANDEM_ASSIGN_OR_RETURN(TlsTexts texts, Read(files));
  return std::unique_ptr<ClientTls>(new ClientTls(files, std::move(texts)));
}

TlsTexts ClientTls::Current() {
  absl::StatusOr<TlsTexts> texts = Read(files_);
  if (!texts.ok()) {
    platform::Log(platform::LogLevel::kError, "the TLS files cannot be used; the previous ones stay in use",
                  {{"error", std::string(texts.status().message())}});
  }
  const absl::MutexLock lock(&mu_);
  if (texts.ok()) {
    last_ = *std::move(texts);
  }
  return last_;
}

}  // namespace tandem::tls
