// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tandem/v1/report.pb.h"

namespace tandem::device {
class Device;
class TimeMark;
}  // namespace tandem::device
namespace tandem::schedules {
struct Program;
}

namespace tandem::trainer {

// Whether the instructions of a run are timed, and how the run executes then.
enum class Recording : uint8_t {
  kNone,
  kOverlapped,  // as without recording
  kSerialized,  // one instruction at a time, in the order of issue, so that none slows down another
};

// A request to record steps: `steps` overlapped ones and then, if requested, as many serialized ones.
struct ProfileSteps {
  static constexpr uint64_t kMaxId = (uint64_t{1} << 46) - 1;
  static constexpr int kMaxSteps = 16;

  uint64_t id = 0;  // the same on every rank; 0: no request
  int steps = 0;
  bool serialized = false;
  bool operator==(const ProfileSteps&) const = default;

  // Encodes the request as an integer that a double holds exactly, so that ranks can agree on it together
  // with the norm; 0 for id 0. Requires id <= kMaxId and 0 < steps <= kMaxSteps, or id 0.
  double ToNumber() const;
  static ProfileSteps FromNumber(double number);
};

// The queue of requests that the ranks have agreed on. All ranks add the same requests after the same steps,
// so they record the same steps. Not thread-safe.
class ProfileQueue {
 public:
  void Add(const ProfileSteps& asked) { queue_.push_back(asked); }

  // How the next step is recorded.
  Recording next() const;

  // The request of a recorded step, and whether the step was the request's last.
  struct Recorded {
    uint64_t id = 0;
    bool last = false;
  };
  // Counts one recorded step. Requires next() != kNone.
  Recorded Advance();

 private:
  std::deque<ProfileSteps> queue_;
  int done_ = 0;  // recorded steps of the first request
};

// Measures the times of the instructions of one run of a program, on the streams that they run on.
class StepRecorder {
 public:
  // `device` and `program` must outlive this object. `recording` must not be kNone.
  StepRecorder(device::Device& device, const schedules::Program& program, int64_t step, Recording recording);
  ~StepRecorder();

  // Must be called on a stream before all instructions. Times count from this point.
  void MarkOrigin();

  // Calls `run`, which does the work of `instruction`, and times it. Must be called on the instruction's
  // stream.
  void Run(int instruction, const std::function<void()>& run);

  // Returns the measured times, without the rank. Requires that all streams have finished the run.
  v1::StepTimeline Take() const;

 private:
  struct Times {
    std::unique_ptr<device::TimeMark> start;
    std::unique_ptr<device::TimeMark> end;
    int64_t cpu_ns = -1;
  };

  device::Device& device_;
  const schedules::Program& program_;
  const int64_t step_;
  const bool serialized_;
  const int64_t start_unix_ns_;
  std::unique_ptr<device::TimeMark> origin_;
  std::vector<Times> times_;  // by instruction
};

}  // namespace tandem::trainer
