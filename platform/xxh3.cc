// SPDX-License-Identifier: Apache-2.0
#include "platform/xxh3.h"

#include <xxhash.h>

#include <new>

#include "absl/strings/str_format.h"

namespace tandem::platform {
namespace {

std::string ToText(const XXH128_hash_t& hash) {
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace

std::string Xxh3Of(std::string_view bytes) { return ToText(XXH3_128bits(bytes.data(), bytes.size())); }

struct Xxh3::State {
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

Xxh3::Xxh3() : state_(std::make_unique<State>()) {}
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;

void Xxh3::Add(std::string_view bytes) { XXH3_128bits_update(state_->xxh3, bytes.data(), bytes.size()); }

std::string Xxh3::Get() const { return ToText(XXH3_128bits_digest(state_->xxh3)); }

}  // namespace tandem::platform
