#include "tests/cuda/spinning_backend.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>

#include <random>
#include <string>
#include <utility>

#include "device/cuda/device.h"
#include "ops/operations.h"
#include "tests/cuda/spin.h"

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

class SpinningDevice final : public device::Device {
 public:
  SpinningDevice(device::Device& inner, uint64_t seed) : inner_(inner), engine_(seed) {}

  c10::Device torch_device() const override { return inner_.torch_device(); }
  bool finishes_in_calls() const override { return inner_.finishes_in_calls(); }
  std::unique_ptr<device::Stream> MakeStream(const std::string& name, device::StreamError error) override {
    return std::make_unique<SpinningStream>(inner_.MakeStream(name, std::move(error)), engine_());
  }
  std::unique_ptr<device::Region> Reserve(int64_t bytes) override { return inner_.Reserve(bytes); }
  std::unique_ptr<device::Region> ReserveHost(int64_t bytes) override { return inner_.ReserveHost(bytes); }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    inner_.CopyToDevice(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    inner_.CopyToHost(host, device, bytes);
  }
  void Fill(void* begin, uint8_t byte, int64_t bytes) override { inner_.Fill(begin, byte, bytes); }
  std::unique_ptr<device::TimeMark> MarkTime() override { return inner_.MarkTime(); }
  void Synchronize() override { inner_.Synchronize(); }

 private:
  device::Device& inner_;
  std::mt19937_64 engine_;
};

class SpinningBackend final : public trainer::Backend {
 public:
  SpinningBackend(int index, uint64_t seed)
      : inner_(trainer::MakeCudaBackend(index)), device_(inner_->device(), seed) {}

  device::Device& device() override { return device_; }
  const ops::Operations& operations() const override { return inner_->operations(); }
  const fsdp::ShardKernels& shard_kernels() const override { return inner_->shard_kernels(); }
  std::unique_ptr<comm::CommunicatorFactory> MakeCommunicatorFactory(comm::Rendezvous rendezvous) override {
    return inner_->MakeCommunicatorFactory(std::move(rendezvous));
  }
  bool needs_watchdog() const override { return inner_->needs_watchdog(); }

 private:
  const std::unique_ptr<trainer::Backend> inner_;
  SpinningDevice device_;
};

}  // namespace

std::unique_ptr<trainer::Backend> MakeSpinningBackend(int index, uint64_t seed) {
  return std::make_unique<SpinningBackend>(index, seed);
}

}  // namespace tandem::cuda
