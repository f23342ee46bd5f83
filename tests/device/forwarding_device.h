// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "device/device.h"

namespace tandem::device {

// Forwards every call to another device, which must outlive it. The base of test doubles that watch or change
// some calls.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& inner) : inner_(inner) {}

  std::string name() const override { return inner_.name(); }
  MemoryUse memory_use() const override { return inner_.memory_use(); }
  bool finishes_in_calls() const override { return inner_.finishes_in_calls(); }
  std::unique_ptr<Stream> MakeStream(const std::string& name, StreamPriority priority,
                                     StreamError error) override {
    return inner_.MakeStream(name, priority, std::move(error));
  }
  std::unique_ptr<Region> Reserve(int64_t bytes) override { return inner_.Reserve(bytes); }
  std::unique_ptr<Region> ReserveHost(int64_t bytes) override { return inner_.ReserveHost(bytes); }
  void CopyToDevice(void* to, const void* host, int64_t bytes) override {
    inner_.CopyToDevice(to, host, bytes);
  }
  void CopyToHost(void* host, const void* from, int64_t bytes) override {
    inner_.CopyToHost(host, from, bytes);
  }
  void Copy(void* to, const void* from, int64_t bytes) override { inner_.Copy(to, from, bytes); }
  std::unique_ptr<Graph> Capture(std::function<void()> work) override {
    return inner_.Capture(std::move(work));
  }
  void Fill(void* begin, uint8_t byte, int64_t bytes) override { inner_.Fill(begin, byte, bytes); }
  std::unique_ptr<TimeMark> MarkTime() override { return inner_.MarkTime(); }
  void Synchronize() override { inner_.Synchronize(); }

 protected:
  Device& inner_;
};

}  // namespace tandem::device
