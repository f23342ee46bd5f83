// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>

#include <memory>
#include <string>

#include "tls/openssl_handles.h"

namespace tandem::tls {

// Returns the certificate (PEM) with its signature (r, s) replaced by (r, n - s), where n is the order of
// P-256. Expects that OpenSSL verifies it with the authority's certificate.
inline std::string TwinOf(const std::string& certificate, const std::string& authority) {
  const CertificateHandle twin = CertificateOf(certificate);
  const ASN1_BIT_STRING* signature = nullptr;
  X509_get0_signature(&signature, nullptr, twin.get());
  const unsigned char* bytes = ASN1_STRING_get0_data(signature);
  const std::unique_ptr<ECDSA_SIG, Freer<ECDSA_SIG_free>> pair(
      d2i_ECDSA_SIG(nullptr, &bytes, ASN1_STRING_length(signature)));
  const std::unique_ptr<EC_GROUP, Freer<EC_GROUP_free>> curve(
      EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  BIGNUM* other = BN_new();
  EXPECT_EQ(BN_sub(other, EC_GROUP_get0_order(curve.get()), ECDSA_SIG_get0_s(pair.get())), 1);
  EXPECT_EQ(ECDSA_SIG_set0(pair.get(), BN_dup(ECDSA_SIG_get0_r(pair.get())), other), 1);
  unsigned char* encoded = nullptr;
  const int size = i2d_ECDSA_SIG(pair.get(), &encoded);
  EXPECT_EQ(ASN1_STRING_set(const_cast<ASN1_BIT_STRING*>(signature), encoded, size), 1);
  OPENSSL_free(encoded);

  const CertificateHandle issuer = CertificateOf(authority);
  EXPECT_EQ(X509_verify(twin.get(), X509_get0_pubkey(issuer.get())), 1);
  const BioHandle out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), twin.get());
  return TextOf(out.get());
}

}  // namespace tandem::tls
