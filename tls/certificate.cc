// SPDX-License-Identifier: Apache-2.0
#include "tls/certificate.h"

#include <arpa/inet.h>
#include <openssl/err.h>

#include "tls/openssl_handles.h"

namespace tandem::tls {
namespace {

std::string NameText(const X509_NAME* name) {
  const BioHandle out(BIO_new(BIO_s_mem()));
  // RFC 2253 also escapes control characters and characters beyond ASCII.
  X509_NAME_print_ex(out.get(), name, 0, XN_FLAG_RFC2253);
  return TextOf(out.get());
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm fields{};
  return ASN1_TIME_to_tm(time, &fields) == 1 ? absl::FromTimeT(timegm(&fields)) : absl::InfinitePast();
}

std::string Asn1Text(const ASN1_STRING* string) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
          static_cast<size_t>(ASN1_STRING_length(string))};
}

std::string AddressOf(const ASN1_STRING* bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  const int family = ASN1_STRING_length(bytes) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(bytes) != 16) {
    return "";
  }
  inet_ntop(family, ASN1_STRING_get0_data(bytes), text, sizeof(text));
  return text;
}

}  // namespace

Certificate Describe(x509_st* certificate) {
  Certificate out{.subject = NameText(X509_get_subject_name(certificate)),
                  .issuer = NameText(X509_get_issuer_name(certificate)),
                  .not_before = TimeOf(X509_get0_notBefore(certificate)),
                  .not_after = TimeOf(X509_get0_notAfter(certificate)),
                  .fingerprints = FingerprintsOf(certificate),
                  .for_servers = X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) == 1,
                  .for_clients = X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) == 1};
  const NamesHandle names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_URI) {
      out.uris.push_back(Asn1Text(name->d.uniformResourceIdentifier));
    } else if (name->type == GEN_DNS) {
      out.hosts.push_back(Asn1Text(name->d.dNSName));
    } else if (name->type == GEN_IPADD) {
      out.hosts.push_back(AddressOf(name->d.iPAddress));
    }
  }
  return out;
}

absl::StatusOr<Certificate> DescribePem(const std::string& pem) {
  const CertificateHandle certificate = CertificateOf(pem);
  if (certificate == nullptr) {
    return absl::InvalidArgumentError("it holds no certificate (PEM): " + OpenSslReason());
  }
  return Describe(certificate.get());
}

std::string OpenSslReason() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "no reason given" : reason;
}

}  // namespace tandem::tls
