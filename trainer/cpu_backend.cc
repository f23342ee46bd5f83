#include <utility>

#include "comm/gloo_communicator.h"
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
  fsdp::MakeShardWork shard_work() const override { return fsdp::MakeCpuShardWork; }
  std::unique_ptr<GradientNorm> MakeGradientNorm(int) override { return MakeCpuGradientNorm(); }

  // Gloo has nothing that a clone and its group could share.
  std::unique_ptr<comm::Communicator> MakeCommunicator(const GroupMembership& group,
                                                       const Rendezvous& rendezvous,
                                                       comm::Communicator*) override {
    return MakeHostCommunicator(group, rendezvous);
  }

  bool needs_watch() const override { return false; }

 private:
  const std::unique_ptr<device::Device> device_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend() { return std::make_unique<CpuBackend>(device::MakeCpuDevice()); }

std::unique_ptr<Backend> MakeCpuBackend(device::StreamFactory& streams) {
  return std::make_unique<CpuBackend>(device::MakeCpuDevice(streams));
}

std::unique_ptr<comm::Communicator> MakeHostCommunicator(const GroupMembership& group,
                                                         const Rendezvous& rendezvous) {
  return comm::MakeGlooCommunicator(group.name, rendezvous.store, group.prefix, group.rank, group.size,
                                    rendezvous.data_address, rendezvous.timeout);
}

}  // namespace tandem::trainer
