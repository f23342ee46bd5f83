// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/InferenceMode.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "device/device.h"
#include "tests/device/forwarding_device.h"
#include "tests/trainer/forwarding_backend.h"

namespace tandem::trainer {

// The work of a stream on a device that only issues. Enqueue runs it, or drops it; the test decides when it
// counts as finished. Outlives the stream, as events do.
class IssuedWork final : public device::Event::State {
 public:
  bool IsReached() override { return finished; }

  bool runs = true;
  std::atomic<bool> finished{true};
  std::atomic<bool> failed{false};

 private:
  void Recycle() override {}
};

class IssuingStream final : public device::Stream {
 public:
  explicit IssuingStream(IssuedWork& issued) : issued_(issued) {}

  void Enqueue(std::function<void()> work) override {
    if (issued_.runs) {
      const c10::InferenceMode no_gradients;
      work();
    }
  }
  device::Event Record() override { return device::Event(&issued_); }
  void Wait(const device::Event&) override {}
  void Synchronize() override { Synchronize(device::Event()); }
  void Synchronize(const device::Event&) override {
    while (!issued_.finished) {
      std::this_thread::yield();
    }
    if (issued_.failed) {
      throw device::DeviceError("an illegal address");
    }
  }

 private:
  IssuedWork& issued_;
};

class IssuingDevice final : public device::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  bool finishes_in_calls() const override { return false; }
  std::unique_ptr<device::Stream> MakeStream(const std::string& name, device::StreamPriority priority,
                                             device::StreamError) override {
    priorities[name] = priority;
    return std::make_unique<IssuingStream>(streams[name]);
  }

  std::map<std::string, IssuedWork> streams;  // by name
  std::map<std::string, device::StreamPriority> priorities;
};

class IssuingBackend final : public ForwardingBackend {
 public:
  IssuingBackend() : ForwardingBackend(MakeCpuBackend()), issuing(inner().device()) {}

  device::Device& device() override { return issuing; }

  IssuingDevice issuing;
};

}  // namespace tandem::trainer
