// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/spinning_backend.h"

#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "device/cuda/device.h"
#include "tests/cuda/spin.h"
#include "tests/device/forwarding_device.h"
#include "tests/trainer/forwarding_backend.h"

namespace tandem::cuda {
namespace {

class SpinningStream final : public device::Stream {
 public:
  SpinningStream(std::unique_ptr<device::Stream> inner, uint64_t seed)
      : inner_(std::move(inner)), engine_(seed) {}

  void Enqueue(std::function<void()> work) override {
    const auto nanoseconds = static_cast<int64_t>(engine_() % 300'000);
    inner_->Enqueue([nanoseconds, work = std::move(work)] {
      Spin(nanoseconds, c10::cuda::getCurrentCUDAStream().stream());
      work();
    });
  }
  device::Event Record() override { return inner_->Record(); }
  void Wait(const device::Event& event) override { inner_->Wait(event); }
  void Synchronize() override { inner_->Synchronize(); }
  void Synchronize(const device::Event& event) override { inner_->Synchronize(event); }

 private:
  const std::unique_ptr<device::Stream> inner_;
  std::mt19937_64 engine_;
};

class SpinningDevice final : public device::ForwardingDevice {
 public:
  SpinningDevice(device::Device& inner, uint64_t seed) : ForwardingDevice(inner), engine_(seed) {}

  std::unique_ptr<device::Stream> MakeStream(const std::string& name, device::StreamPriority priority,
                                             device::StreamError error) override {
    return std::make_unique<SpinningStream>(ForwardingDevice::MakeStream(name, priority, std::move(error)),
                                            engine_());
  }

 private:
  std::mt19937_64 engine_;
};

class SpinningBackend final : public trainer::ForwardingBackend {
 public:
  SpinningBackend(int index, uint64_t seed)
      : ForwardingBackend(trainer::MakeCudaBackend(index)), device_(inner().device(), seed) {}

  device::Device& device() override { return device_; }

 private:
  SpinningDevice device_;
};

}  // namespace

parity::RunOptions OnGpus() { return {.make_backend = trainer::MakeCudaBackend}; }

parity::RunOptions OnSpinningGpus(uint64_t seed, bool fill_with_nan) {
  return {.fill_with_nan = fill_with_nan, .make_backend = [seed](int rank) {
            return std::make_unique<SpinningBackend>(rank, seed * 100 + static_cast<uint64_t>(rank));
          }};
}

}  // namespace tandem::cuda
