// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "comm/communicator_factory.h"
#include "device/device.h"
#include "ops/operations.h"
#include "trainer/backend.h"

namespace tandem::trainer {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(std::unique_ptr<device::Device> device) : device_(std::move(device)) {}

  device::Device& device() override { return *device_; }
  const ops::Operations& operations() const override { return ops::CpuOperations(); }
  const fsdp::ShardKernels& shard_kernels() const override { return fsdp::CpuShardKernels(); }
  std::unique_ptr<comm::CommunicatorFactory> MakeCommunicatorFactory(comm::Rendezvous rendezvous) override {
    return comm::MakeGlooFactory(std::move(rendezvous));
  }
  bool needs_watchdog() const override { return false; }

 private:
  const std::unique_ptr<device::Device> device_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend() { return std::make_unique<CpuBackend>(device::MakeCpuDevice()); }

std::unique_ptr<Backend> MakeCpuBackend(device::StreamFactory& streams) {
  return std::make_unique<CpuBackend>(device::MakeCpuDevice(streams));
}

}  // namespace tandem::trainer
