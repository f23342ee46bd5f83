// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/InferenceMode.h>

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "device/stream.h"

namespace tandem::trainer {

// Streams that, as on a GPU, run work in Enqueue on the issuing thread, and throw at every use after an error
// of the device.
class IssuingThreadStream final : public device::Stream {
 public:
  explicit IssuingThreadStream(device::StreamError error) : error_(std::move(error)) {}

  void Enqueue(std::function<void()> work) override {
    if (error_.is_set()) {
      return;
    }
    try {
      const c10::InferenceMode no_gradients;
      work();
    } catch (...) {
      error_.Set(std::current_exception());
    }
  }
  device::Event Record() override {
    if (error_.is_set()) {
      throw std::runtime_error("recording an event: the device has failed");
    }
    return {};
  }
  void Wait(const device::Event&) override {}
  void Synchronize() override { error_.RethrowIfSet(); }
  void Synchronize(const device::Event&) override { error_.RethrowIfSet(); }

 private:
  device::StreamError error_;
};

class IssuingThreadStreams final : public device::StreamFactory {
 public:
  std::unique_ptr<device::Stream> MakeStream(const std::string&, device::StreamError error) override {
    return std::make_unique<IssuingThreadStream>(std::move(error));
  }
};

}  // namespace tandem::trainer
