// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "trainer/backend.h"

namespace tandem::trainer {

// Forwards to another backend, which it owns. Fakes derive from it and override what differs.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  device::Device& device() override { return inner_->device(); }
  const ops::Operations& operations() const override { return inner_->operations(); }
  const fsdp::ShardKernels& shard_kernels() const override { return inner_->shard_kernels(); }
  std::unique_ptr<comm::CommunicatorFactory> MakeCommunicatorFactory(comm::Rendezvous rendezvous) override {
    return inner_->MakeCommunicatorFactory(std::move(rendezvous));
  }
  bool needs_watchdog() const override { return inner_->needs_watchdog(); }

 protected:
  Backend& inner() { return *inner_; }

 private:
  const std::unique_ptr<Backend> inner_;
};

}  // namespace tandem::trainer
