#include "checkpoint/digest.h"

#include <xxhash.h>

#include "absl/strings/str_format.h"

namespace tandem::checkpoint {

std::string Xxh3(std::string_view content) {
  const XXH128_hash_t hash = XXH3_128bits(content.data(), content.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace tandem::checkpoint
