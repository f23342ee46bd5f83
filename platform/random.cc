// SPDX-License-Identifier: Apache-2.0
#include "platform/random.h"

#include <sys/random.h>

#include <cerrno>

#include "platform/check.h"

namespace tandem::platform {
namespace {

class KernelRandom final : public Random {
 public:
  uint64_t Next64() override {
    uint64_t value = 0;
    ssize_t got = 0;
    do {
      got = getrandom(&value, sizeof(value), 0);
    } while (got < 0 && errno == EINTR);
    // The kernel returns up to 256 bytes completely or not at all.
    TANDEM_CHECK(got == sizeof(value), "getrandom(2) works");
    return value;
  }
};

}  // namespace

std::string Random::HexId(int digits) {
  TANDEM_CHECK(digits > 0 && digits <= 64, "an id has 1 to 64 digits");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  uint64_t bits = 0;
  for (int i = 0; i < digits; ++i) {
    if (i % 16 == 0) {
      bits = Next64();
    }
    id.push_back(kDigits[bits & 15]);
    bits >>= 4;
  }
  return id;
}

Random& SystemRandom() {
  static KernelRandom* const random = new KernelRandom;
  return *random;
}

}  // namespace tandem::platform
