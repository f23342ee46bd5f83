// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/digest.h"

#include <xxhash.h>

#include <new>

#include "absl/strings/str_format.h"

namespace tandem::checkpoint {
namespace {

std::string ToText(const XXH128_hash_t& hash) {
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace

std::string Digest(std::string_view content) { return ToText(XXH3_128bits(content.data(), content.size())); }

struct DigestOfParts::State {
  State() : xxh3(XXH3_createState()) {
    if (xxh3 == nullptr) {
      throw std::bad_alloc();
    }
    XXH3_128bits_reset(xxh3);
  }
  ~State() { XXH3_freeState(xxh3); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* const xxh3;
};

DigestOfParts::DigestOfParts() : state_(std::make_unique<State>()) {}
DigestOfParts::~DigestOfParts() = default;
DigestOfParts::DigestOfParts(DigestOfParts&&) noexcept = default;
DigestOfParts& DigestOfParts::operator=(DigestOfParts&&) noexcept = default;

void DigestOfParts::Add(std::string_view part) {
  XXH3_128bits_update(state_->xxh3, part.data(), part.size());
}

std::string DigestOfParts::Get() const { return ToText(XXH3_128bits_digest(state_->xxh3)); }

}  // namespace tandem::checkpoint
