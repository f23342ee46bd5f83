#include "platform/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace tandem::platform {
namespace {

class UnjumpingClock final : public Clock {
 public:
  absl::Time Now() const override {
    return start_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_start_);
  }

 private:
  const absl::Time start_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();
};

}  // namespace

const Clock& SteadyClock() {
  static const UnjumpingClock* const clock = new UnjumpingClock;
  return *clock;
}

}  // namespace tandem::platform
