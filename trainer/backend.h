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

// A rank's device, with factories for everything that depends on the kind of the device. It must outlive what
// it made. Every rank has its own.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual device::Device& device() = 0;
  virtual const ops::Operations& operations() const = 0;
  virtual const fsdp::ShardKernels& shard_kernels() const = 0;

  // Makes communicators for tensors on the device.
  virtual std::unique_ptr<comm::CommunicatorFactory> MakeCommunicatorFactory(comm::Rendezvous rendezvous) = 0;

  // Whether collectives can hang without an error, so that a comm::Watchdog is needed.
  virtual bool needs_watchdog() const = 0;
};

std::unique_ptr<Backend> MakeCpuBackend();

// For tests: makes streams with `streams`, which must outlive the backend.
std::unique_ptr<Backend> MakeCpuBackend(device::StreamFactory& streams);

// Uses GPU `index` of the GPUs visible to this process. Defined only in programs that are built with CUDA.
std::unique_ptr<Backend> MakeCudaBackend(int index);

}  // namespace tandem::trainer
