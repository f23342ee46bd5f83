// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tandem/v1/report.pb.h"
#include "trainer/profiling.h"

namespace tandem::device {
class Device;
class TimeMark;
}  // namespace tandem::device
namespace tandem::schedules {
struct Program;
}

namespace tandem::trainer {

// Measures the times of the instructions of one run of a program, on the streams that they run on.
class StepRecorder {
 public:
  // `device` and `program` outlive it. `recording` must not be kNone.
  StepRecorder(device::Device& device, const schedules::Program& program, int64_t step, Recording recording);
  ~StepRecorder();

  // Must be called on a stream before all instructions. Times count from this point.
  void MarkOrigin();

  // Calls `run`, which does the work of that instruction, on its stream.
  void Run(int instruction, const std::function<void()>& run);

  // The measured times, without the rank. The streams must have passed all instructions.
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
