// SPDX-License-Identifier: Apache-2.0
#include "platform/sha256.h"

#include <openssl/evp.h>

#include <stdexcept>

#include "absl/strings/escaping.h"

namespace tandem::platform {

struct Sha256::Context {
  EVP_MD_CTX* digest = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(digest); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  if (context_->digest == nullptr || EVP_DigestInit_ex(context_->digest, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("OpenSSL offers no SHA-256");
  }
}

Sha256::~Sha256() = default;

void Sha256::Add(std::string_view bytes) { EVP_DigestUpdate(context_->digest, bytes.data(), bytes.size()); }

std::string Sha256::Finish() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context_->digest, bytes, &size);
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes), size});
}

std::string Sha256Of(std::string_view bytes) {
  Sha256 digest;
  digest.Add(bytes);
  return digest.Finish();
}

}  // namespace tandem::platform
