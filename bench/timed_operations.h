// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "fsdp/shard_kernels.h"
#include "ops/device_kernels.h"

namespace tandem::bench {

// One call of a kernel, on the stream that was current when it was issued.
struct TimedCall {
  std::string name;  // for products with both sizes: "Multiply [8192, 4096] [4096, 6144]"
  std::unique_ptr<device::TimeMark> start;
  std::unique_ptr<device::TimeMark> end;
  std::chrono::nanoseconds issue{};  // host time to issue the call, without that of the marks
};

// Issues calls, each between two time marks on the device's current stream. Used by one issuing thread.
class CallTimer {
 public:
  CallTimer(device::Device& device, std::vector<TimedCall>& calls) : device_(device), calls_(calls) {}

  template <typename Call>
  auto Time(std::string name, const Call& call) const {
    const size_t index = calls_.size();
    calls_.push_back({.name = std::move(name), .start = device_.MarkTime()});
    struct End {
      const CallTimer& timer;
      const size_t index;
      const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
      ~End() {
        timer.calls_[index].issue = std::chrono::steady_clock::now() - begin;
        timer.calls_[index].end = timer.device_.MarkTime();
      }
    } const end{*this, index};
    return call();
  }

 private:
  device::Device& device_;
  std::vector<TimedCall>& calls_;
};

// Wraps `inner`, which must outlive the result, and times every call.
std::unique_ptr<ops::DeviceKernels> MakeTimedKernels(const ops::DeviceKernels& inner, CallTimer timer);
std::unique_ptr<fsdp::ShardKernels> MakeTimedShardKernels(const fsdp::ShardKernels& inner, CallTimer timer);

}  // namespace tandem::bench
