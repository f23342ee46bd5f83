// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "comm/communicator_factory.h"
#include "fsdp/shard_kernels.h"

namespace tandem::device {
class Device;
class StreamFactory;
}  // namespace tandem::device
namespace tandem::ops {
class Operations;
}

namespace tandem::trainer {

// What a rank runs on: one device, and what of the rest of Tandem is made for its kind. Outlives all that it
// made. One per rank.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual device::Device& device() = 0;
  virtual const ops::Operations& operations() const = 0;
  virtual const fsdp::ShardKernels& shard_kernels() const = 0;

  // For tensors on the device.
  virtual std::unique_ptr<comm::CommunicatorFactory> MakeCommunicatorFactory(comm::Rendezvous rendezvous) = 0;

  // Whether collectives can hang without the host noticing: comm::Watchdog is for these.
  virtual bool needs_watchdog() const = 0;
};

std::unique_ptr<Backend> MakeCpuBackend();

// On these streams, which outlive it (tests).
std::unique_ptr<Backend> MakeCpuBackend(device::StreamFactory& streams);

// On GPU `index` of those that this process sees. In programs that are built with CUDA only.
std::unique_ptr<Backend> MakeCudaBackend(int index);

}  // namespace tandem::trainer
