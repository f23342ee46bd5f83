// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/nccl_factory.h"
#include "comm/network_interface.h"
#include "device/cuda/device.h"
#include "fsdp/cuda/shard_kernels.h"
#include "ops/cuda/operations.h"
#include "proto/reasons.h"
#include "schedules/check/together.h"
#include "trainer/backend.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

// A piece of work is an instruction at least.
static_assert(device::kStreamAhead >= schedules::kAhead,
              "rule 4 holds the thread no later than a stream does");

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index) : index_(index), device_(device::MakeCudaDevice(index)) {}

  device::Device& device() override { return *device_; }
  const ops::Operations& operations() const override { return ops::CudaOperations(); }
  const fsdp::ShardKernels& shard_kernels() const override { return fsdp::CudaShardKernels(); }
  std::unique_ptr<comm::CommunicatorFactory> MakeCommunicatorFactory(comm::Rendezvous rendezvous) override {
    // What NCCL sends over sockets, its rendezvous too, goes over the data address; an operator who has said
    // otherwise in the worker's environment is obeyed.
    if (const std::string interface = comm::InterfaceOf(rendezvous.data_address); !interface.empty()) {
      setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), /*overwrite=*/0);
    }
    setenv("NCCL_COMM_BLOCKING", "1", /*overwrite=*/1);  // it would win over what communicators ask for
    return comm::MakeNcclFactory(std::move(rendezvous), index_);
  }
  bool needs_watchdog() const override { return true; }

 private:
  const int index_;
  const std::unique_ptr<device::Device> device_;
};

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend(int index) {
  // Recipes for other trainers set it to 1: all streams then share one queue, and nothing overlaps.
  const char* const connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (connections != nullptr && std::atoi(connections) < schedules::kMostStreams) {
    throw UserError(
        absl::StrCat("CUDA_DEVICE_MAX_CONNECTIONS is ", connections,
                     " in the environment of this worker, so gathers and reductions cannot all run beside "
                     "compute; allowed: ",
                     schedules::kMostStreams, ", or unset; unset it and start the worker again"),
        proto::ReasonCode("InvalidEnvironment"));
  }
  return std::make_unique<CudaBackend>(index);
}

}  // namespace tandem::trainer
