// SPDX-License-Identifier: Apache-2.0
#include "platform/sha256.h"

#include <openssl/evp.h>

#include <stdexcept>

#include "absl/strings/escaping.h"

namespace tandem::platform {

std::string Sha256Of(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("OpenSSL offers no SHA-256");
  }
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
}

}  // namespace tandem::platform
