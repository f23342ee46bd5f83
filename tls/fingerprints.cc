// SPDX-License-Identifier: Apache-2.0
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/objects.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "tls/certificate.h"
#include "tls/openssl_handles.h"

namespace tandem::tls {
namespace {

using NumberHandle = std::unique_ptr<BIGNUM, Freer<BN_free>>;
using CurveHandle = std::unique_ptr<EC_GROUP, Freer<EC_GROUP_free>>;
using SignatureHandle = std::unique_ptr<ECDSA_SIG, Freer<ECDSA_SIG_free>>;

// r and s are drawn below the order. Both are shorter by so many bits once in 2^128 signatures.
constexpr int kMostBitsFewer = 64;

std::string Sha256Of(const X509* certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  X509_digest(certificate, EVP_sha256(), digest, &size);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
}

// Returns the orders of all curves that OpenSSL knows by name, each once.
const std::vector<NumberHandle>& Orders() {
  static const auto& orders = *new std::vector<NumberHandle>([] {
    std::vector<EC_builtin_curve> known(EC_get_builtin_curves(nullptr, 0));
    EC_get_builtin_curves(known.data(), known.size());
    std::vector<NumberHandle> out;
    for (const EC_builtin_curve& each : known) {
      const CurveHandle curve(EC_GROUP_new_by_curve_name(each.nid));
      const BIGNUM* const order = curve == nullptr ? nullptr : EC_GROUP_get0_order(curve.get());
      const auto is_same = [&](const NumberHandle& other) { return BN_cmp(other.get(), order) == 0; };
      if (order != nullptr && std::none_of(out.begin(), out.end(), is_same)) {
        out.emplace_back(BN_dup(order));
      }
    }
    ERR_clear_error();  // this build may lack some of the curves
    return out;
  }());
  return orders;
}

// Returns null if it is not an ECDSA signature.
SignatureHandle EcdsaSignatureOf(const X509* certificate, const ASN1_BIT_STRING* signature) {
  int key = NID_undef;
  if (OBJ_find_sigid_algs(X509_get_signature_nid(certificate), nullptr, &key) != 1 ||
      key != NID_X9_62_id_ecPublicKey) {
    return nullptr;
  }
  const unsigned char* bytes = ASN1_STRING_get0_data(signature);
  SignatureHandle out(d2i_ECDSA_SIG(nullptr, &bytes, ASN1_STRING_length(signature)));
  ERR_clear_error();
  return out;
}

}  // namespace

Fingerprints FingerprintsOf(x509_st* certificate) {
  std::vector<std::string> out = {Sha256Of(certificate)};
  const CertificateHandle twin(X509_dup(certificate));
  const ASN1_BIT_STRING* signature = nullptr;
  X509_get0_signature(&signature, nullptr, twin.get());
  const SignatureHandle pair = EcdsaSignatureOf(twin.get(), signature);
  if (pair != nullptr) {
    const NumberHandle r(BN_dup(ECDSA_SIG_get0_r(pair.get())));
    const NumberHandle s(BN_dup(ECDSA_SIG_get0_s(pair.get())));
    const int bits = std::max(BN_num_bits(r.get()), BN_num_bits(s.get()));
    for (const NumberHandle& order : Orders()) {
      if (BN_cmp(r.get(), order.get()) >= 0 || BN_cmp(s.get(), order.get()) >= 0 ||
          BN_num_bits(order.get()) > bits + kMostBitsFewer) {
        continue;  // the key belongs to another curve
      }
      NumberHandle other(BN_new());
      BN_sub(other.get(), order.get(), s.get());
      ECDSA_SIG_set0(pair.get(), BN_dup(r.get()), other.release());
      unsigned char* encoded = nullptr;
      const int size = i2d_ECDSA_SIG(pair.get(), &encoded);
      ASN1_STRING_set(const_cast<ASN1_BIT_STRING*>(signature), encoded, size);  // `twin` is our own copy
      OPENSSL_free(encoded);
      out.push_back(Sha256Of(twin.get()));
    }
  }
  return std::make_shared<const std::vector<std::string>>(std::move(out));
}

}  // namespace tandem::tls
