// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "fsdp/shard_kernels.h"
#include "ops/operations.h"
#include "tests/fsdp/forwarding_shard_kernels.h"
#include "tests/parity/run.h"
#include "tests/platform/forwarding_files.h"
#include "tests/trainer/forwarding_backend.h"
#include "trainer/backend.h"

namespace tandem::parity {

// The CPU with another device: a `Device`, made of the CPU's and `arguments`.
template <typename Device>
class WithDevice final : public trainer::ForwardingBackend {
 public:
  template <typename... Arguments>
  explicit WithDevice(Arguments&... arguments)
      : ForwardingBackend(trainer::MakeCpuBackend()), device_(inner().device(), arguments...) {}
  device::Device& device() override { return device_; }

 private:
  Device device_;
};

// The CPU with other operations: `Kernels`, made of the CPU's and `arguments`.
template <typename Kernels>
class WithKernels final : public trainer::ForwardingBackend {
 public:
  template <typename... Arguments>
  explicit WithKernels(Arguments&&... arguments)
      : ForwardingBackend(trainer::MakeCpuBackend()),
        kernels_(inner().operations().kernels(), std::forward<Arguments>(arguments)...),
        operations_(kernels_) {}
  const ops::Operations& operations() const override { return operations_; }

 private:
  const Kernels kernels_;
  const ops::Operations operations_;
};

// The CPU whose loops over shards are changed: each unit's are a `Unit`, made of its geometry and `argument`.
template <typename Unit, typename Argument>
class WithUnits final : public trainer::ForwardingBackend {
 public:
  explicit WithUnits(Argument argument)
      : ForwardingBackend(trainer::MakeCpuBackend()), kernels_(std::move(argument)) {}
  const fsdp::ShardKernels& shard_kernels() const override { return kernels_; }

 private:
  class Kernels final : public fsdp::ForwardingShardKernels {
   public:
    explicit Kernels(Argument argument)
        : ForwardingShardKernels(fsdp::CpuShardKernels()), argument_(std::move(argument)) {}
    std::unique_ptr<fsdp::UnitKernels> MakeUnit(fsdp::ShardGeometry geometry) const override {
      return std::make_unique<Unit>(std::move(geometry), argument_);
    }

   private:
    const Argument argument_;
  };
  const Kernels kernels_;
};

// The machine's files; each write calls `before` first, and is refused with its error.
class WatchedFiles final : public platform::ForwardingFiles {
 public:
  explicit WatchedFiles(std::function<absl::Status(const std::string& path)> before)
      : before_(std::move(before)) {}

  absl::Status Write(const std::string& path, std::string_view content) override {
    const absl::Status status = before_(path);
    return status.ok() ? ForwardingFiles::Write(path, content) : status;
  }

 private:
  const std::function<absl::Status(const std::string& path)> before_;
};

}  // namespace tandem::parity
