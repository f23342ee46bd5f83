// SPDX-License-Identifier: Apache-2.0
#include "tls/authority.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "tls/certificate.h"
#include "tls/openssl_handles.h"

namespace tandem::tls {
namespace {

absl::Status Failed(const char* what) {
  return absl::InternalError(absl::StrCat(what, ": ", OpenSslReason()));
}

std::string PemOf(X509* certificate) {
  const BioHandle out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), certificate);
  return TextOf(out.get());
}

std::string PemOf(EVP_PKEY* key) {
  const BioHandle out(BIO_new(BIO_s_mem()));
  PEM_write_bio_PKCS8PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return TextOf(out.get());
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// Writes names in the syntax of OpenSSL's configuration. They are checked (identity.h, hosts), so they
// contain no comma.
std::string AlternativeNames(const CertificateRequest& request) {
  std::vector<std::string> out;
  if (!request.uri.empty()) {
    out.push_back("URI:" + request.uri);
  }
  for (const std::string& host : request.hosts) {
    out.push_back((IsAddress(host) ? "IP:" : "DNS:") + host);
  }
  return absl::StrJoin(out, ",");
}

absl::Status Extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionHandle extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return Failed("a certificate's extension");
  }
  return absl::OkStatus();
}

// Makes a certificate without extensions and signature.
absl::StatusOr<CertificateHandle> Blank(const std::string& common_name, const X509_NAME* issuer,
                                        EVP_PKEY* key, absl::Time not_before, absl::Time not_after) {
  CertificateHandle out(X509_new());
  X509_set_version(out.get(), 2);  // the number of version 3
  BIGNUM* serial = BN_new();
  const bool drawn = BN_rand(serial, 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
                     BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(out.get())) != nullptr;
  BN_free(serial);
  const NameHandle name(X509_NAME_new());
  const bool named =
      X509_NAME_add_entry_by_txt(name.get(), "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0) == 1;
  if (!drawn || !named) {
    return Failed("a certificate's name");
  }
  X509_set_subject_name(out.get(), name.get());
  X509_set_issuer_name(out.get(), issuer == nullptr ? name.get() : issuer);
  ASN1_TIME_set(X509_getm_notBefore(out.get()), absl::ToTimeT(not_before));
  ASN1_TIME_set(X509_getm_notAfter(out.get()), absl::ToTimeT(not_after));
  X509_set_pubkey(out.get(), key);
  return out;
}

}  // namespace

absl::StatusOr<Credential> MakeAuthority(const std::string& common_name, absl::Time not_before,
                                         absl::Time not_after) {
  const KeyHandle key(EVP_EC_gen("P-256"));
  if (key == nullptr) {
    return Failed("a key");
  }
  TANDEM_ASSIGN_OR_RETURN(CertificateHandle blank,
                          Blank(common_name, nullptr, key.get(), not_before, not_after));
  X509* certificate = blank.get();
  for (const auto& [nid, value] : {std::pair(NID_basic_constraints, "critical,CA:TRUE,pathlen:0"),
                                   std::pair(NID_key_usage, "critical,keyCertSign,cRLSign"),
                                   std::pair(NID_subject_key_identifier, "hash")}) {
    TANDEM_RETURN_IF_ERROR(Extend(certificate, certificate, nid, value));
  }
  if (X509_sign(certificate, key.get(), EVP_sha256()) == 0) {
    return Failed("the authority's signature");
  }
  return Credential{.certificate = PemOf(certificate), .key = PemOf(key.get())};
}

absl::StatusOr<Credential> Issue(const Credential& authority, const CertificateRequest& request) {
  const CertificateHandle ca = CertificateOf(authority.certificate);
  // KeyOf refuses a key with a password; without it OpenSSL would ask for the password on the terminal.
  const KeyHandle ca_key(PEM_read_bio_PrivateKey(BioOf(authority.key).get(), nullptr, nullptr, nullptr));
  if (ca == nullptr || ca_key == nullptr) {
    return absl::InvalidArgumentError("the authority's certificate or key cannot be read: " +
                                      OpenSslReason());
  }
  if (X509_check_private_key(ca.get(), ca_key.get()) != 1) {
    OpenSslReason();
    return absl::InvalidArgumentError("the authority's key is not that of its certificate");
  }
  const KeyHandle key(EVP_EC_gen("P-256"));
  if (key == nullptr) {
    return Failed("a key");
  }
  TANDEM_ASSIGN_OR_RETURN(
      CertificateHandle blank,
      Blank(request.common_name, X509_get_subject_name(ca.get()), key.get(), request.not_before,
            std::min(request.not_after, Describe(ca.get()).not_after)));
  X509* certificate = blank.get();
  const std::string usage = !request.hosts.empty() && !request.uri.empty() ? "serverAuth,clientAuth"
                            : !request.hosts.empty()                       ? "serverAuth"
                                                                           : "clientAuth";
  for (const auto& [nid, value] :
       {std::pair<int, std::string>(NID_basic_constraints, "critical,CA:FALSE"),
        std::pair<int, std::string>(NID_key_usage, "critical,digitalSignature"),
        std::pair<int, std::string>(NID_ext_key_usage, usage),
        std::pair<int, std::string>(NID_subject_key_identifier, "hash"),
        std::pair<int, std::string>(NID_authority_key_identifier, "keyid:always"),
        std::pair<int, std::string>(NID_subject_alt_name, AlternativeNames(request))}) {
    if (!value.empty()) {
      TANDEM_RETURN_IF_ERROR(Extend(certificate, ca.get(), nid, value));
    }
  }
  if (X509_sign(certificate, ca_key.get(), EVP_sha256()) == 0) {
    return Failed("a certificate's signature");
  }
  return Credential{.certificate = PemOf(certificate), .key = PemOf(key.get())};
}

}  // namespace tandem::tls
