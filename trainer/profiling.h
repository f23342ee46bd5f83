// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>

namespace tandem::trainer {

// How a program runs while its instructions are timed.
enum class Recording : uint8_t {
  kNone,
  kOverlapped,  // as always
  kSerialized,  // one instruction at a time, in issue order, so that none slows another
};

// Steps that somebody wants to be recorded: `steps` overlapped ones, then, where wanted, as many serialized.
struct ProfileSteps {
  static constexpr uint64_t kMaxId = (uint64_t{1} << 46) - 1;
  static constexpr int kMaxSteps = 16;

  uint64_t id = 0;  // the same on every rank; 0: none is wanted
  int steps = 0;
  bool serialized = false;
  bool operator==(const ProfileSteps&) const = default;

  // One number, exact as a double, so that ranks can agree on it with the norm; 0 for id 0.
  // Requires id <= kMaxId and 0 < steps <= kMaxSteps, or id 0.
  double ToNumber() const;
  static ProfileSteps FromNumber(double number);
};

// The steps that the ranks have agreed to record, one request after the other. All ranks hear of the same
// requests after the same steps, so they record the same steps. Not thread-safe.
class ProfileQueue {
 public:
  void Add(const ProfileSteps& asked) { queue_.push_back(asked); }

  // How the next step runs.
  Recording next() const;

  // For which request it is recorded, once it is; and whether it was that one's last.
  struct Recorded {
    uint64_t id = 0;
    bool last = false;
  };
  // Requires next() != kNone.
  Recorded Advance();

 private:
  std::deque<ProfileSteps> queue_;
  int done_ = 0;  // steps of the first
};

}  // namespace tandem::trainer
