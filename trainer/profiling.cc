// SPDX-License-Identifier: Apache-2.0
#include "trainer/profiling.h"

namespace tandem::trainer {
namespace {

// In a number: id, 5 bits of steps, 1 of serialized. 46 + 6 bits fit into a double's 53.
constexpr uint64_t kStepsFactor = 2;
constexpr uint64_t kIdFactor = 64;
static_assert(ProfileSteps::kMaxSteps < 32);
static_assert(ProfileSteps::kMaxId < (uint64_t{1} << 53) / kIdFactor);

}  // namespace

double ProfileSteps::ToNumber() const {
  return id == 0 ? 0
                 : static_cast<double>(id * kIdFactor + static_cast<uint64_t>(steps) * kStepsFactor +
                                       (serialized ? 1 : 0));
}

ProfileSteps ProfileSteps::FromNumber(double number) {
  const auto bits = static_cast<uint64_t>(number);
  return {.id = bits / kIdFactor,
          .steps = static_cast<int>(bits % kIdFactor / kStepsFactor),
          .serialized = bits % kStepsFactor != 0};
}

Recording ProfileQueue::next() const {
  if (queue_.empty()) {
    return Recording::kNone;
  }
  return done_ < queue_.front().steps ? Recording::kOverlapped : Recording::kSerialized;
}

ProfileQueue::Recorded ProfileQueue::Advance() {
  const ProfileSteps& first = queue_.front();
  Recorded recorded{.id = first.id, .last = ++done_ == first.steps * (first.serialized ? 2 : 1)};
  if (recorded.last) {
    queue_.pop_front();
    done_ = 0;
  }
  return recorded;
}

}  // namespace tandem::trainer
