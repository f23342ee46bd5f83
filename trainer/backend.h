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

// The device of a rank, and makers of everything that depends on the device's kind. Outlives everything that
// it made. One for each rank.
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

// For tests: uses the streams of `streams`, which outlives it.
std::unique_ptr<Backend> MakeCpuBackend(device::StreamFactory& streams);

// Uses GPU `index` of those that this process sees. Only in programs that are built with CUDA.
std::unique_ptr<Backend> MakeCudaBackend(int index);

}  // namespace tandem::trainer
