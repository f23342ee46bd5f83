// SPDX-License-Identifier: Apache-2.0
#include "data/digest.h"

#include <xxhash.h>

#include "absl/strings/str_format.h"

namespace tandem::data {

std::string Digest(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace tandem::data
