// SPDX-License-Identifier: Apache-2.0
#include "tls/tls_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"
#include "tls/openssl_handles.h"

namespace tandem::tls {
namespace {

absl::StatusOr<std::string> Read(const std::string& source, const std::string& path) {
  absl::StatusOr<std::string> text = platform::ReadAtMost(platform::SystemFiles(), path, kMostPemBytes);
  if (!text.ok()) {
    return absl::Status(text.status().code(), absl::StrCat(source, ": ", text.status().message()));
  }
  return text;
}

// Checks the mode of a key, which must stay secret.
absl::Status CheckSecret(const std::string& source, const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return platform::FileError(errno, "stat", path);
  }
  if ((info.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s: others of this machine may read or write %s (mode %04o); chmod 600 it", source,
                        path, info.st_mode & 07777));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNamed(const TlsFiles& files) {
  for (const auto& [flag, path] :
       {std::pair("--tls-ca", files.ca), std::pair("--tls-cert", files.certificate),
        std::pair("--tls-key", files.key)}) {
    if (path.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          flag,
          " is missing: TLS takes --tls-ca, --tls-cert and --tls-key together; `tandem certs` makes "
          "such files"));
    }
  }
  return absl::OkStatus();
}

std::string WhyNotValid(const Certificate& certificate, absl::Time now) {
  if (now > certificate.not_after) {
    return absl::StrCat("expired on ", absl::FormatTime(certificate.not_after, absl::UTCTimeZone()));
  }
  if (now < certificate.not_before) {
    return absl::StrCat("is not valid before ",
                        absl::FormatTime(certificate.not_before, absl::UTCTimeZone()));
  }
  return "";
}

absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files, const TlsFiles& sources) {
  TANDEM_RETURN_IF_ERROR(CheckNamed(files));
  TlsTexts out;
  TANDEM_ASSIGN_OR_RETURN(out.ca, Read(sources.ca, files.ca));
  TANDEM_ASSIGN_OR_RETURN(out.certificate, Read(sources.certificate, files.certificate));
  TANDEM_ASSIGN_OR_RETURN(out.key, Read(sources.key, files.key));
  TANDEM_RETURN_IF_ERROR(CheckSecret(sources.key, files.key));
  if (const absl::Status ca = DescribePem(out.ca).status(); !ca.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(sources.ca, ": ", files.ca, ": ", ca.message()));
  }
  absl::StatusOr<Certificate> own = DescribePem(out.certificate);
  if (!own.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(sources.certificate, ": ", files.certificate, ": ", own.status().message()));
  }
  out.own = *std::move(own);
  const KeyHandle key = KeyOf(out.key);
  if (key == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        sources.key, ": ", files.key, " holds no private key (PEM, without a password): ", OpenSslReason()));
  }
  if (X509_check_private_key(CertificateOf(out.certificate).get(), key.get()) != 1) {
    OpenSslReason();
    return absl::InvalidArgumentError(absl::StrCat(sources.key, ": ", files.key, " is not the key of ",
                                                   files.certificate, " (", out.own.subject,
                                                   "); give a certificate and its own key"));
  }
  return out;
}

absl::StatusOr<TlsTexts> ReadValidTlsFiles(const TlsFiles& files, absl::Time now) {
  absl::StatusOr<TlsTexts> out = ReadTlsFiles(files);
  if (out.ok()) {
    if (const std::string why = WhyNotValid(out->own, now); !why.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("--tls-cert: ", files.certificate, " (",
                                                        out->own.subject, ") ", why,
                                                        "; renew it, or set this machine's clock"));
    }
  }
  return out;
}

}  // namespace tandem::tls
