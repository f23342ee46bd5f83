// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "comm/communicator_factory.h"
#include "device/device.h"
#include "tests/comm/thread_communicator.h"

namespace tandem::trainer {

// Rank 0 of a group whose other ranks send what it sends; with `hang`, all-gathers are started, as a GPU
// does, and never end. With two_at_once each of them is two collectives, of which the second hangs.
class HangingCommunicator final : public comm::Communicator {
 public:
  HangingCommunicator(std::string name, int size)
      : inner_(std::move(comm::MakeThreadCommunicators(name, 1)[0])), size_(size) {}

  const std::string& name() const override { return inner_->name(); }
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void AllGather(const at::Tensor& input, at::Tensor& output) override {
    if (!hang || two_at_once) {
      at::Tensor own = PartOf(output, 0);
      inner_->AllGather(input, own);
      FillFrom(own, output);
    }
    hanging_ += hang ? 1 : 0;
  }
  void AllToAll(const at::Tensor& input, at::Tensor& output) override {
    at::Tensor own = PartOf(output, 0);
    inner_->AllToAll(PartOf(input, 0), own);
    FillFrom(own, output);
  }
  void AllToAllRows(const at::Tensor& input, const std::vector<int64_t>& sends, at::Tensor& output,
                    const std::vector<int64_t>& receives) override {
    inner_->AllToAllRows(input, sends, output, receives);
  }
  void Gather(const at::Tensor& input, at::Tensor& output) override { inner_->Gather(input, output); }
  void Send(const at::Tensor& input) override { inner_->Send(input); }
  void Receive(at::Tensor& output) override { inner_->Receive(output); }
  void Abort() override { inner_->Abort(); }
  absl::Status RegisterWindow(std::shared_ptr<const device::Region>) override { return absl::OkStatus(); }
  void CheckPending() override {}
  uint64_t num_collectives() const override { return inner_->num_collectives() + hanging_; }
  uint64_t num_ended() const override { return inner_->num_ended(); }

  std::atomic<bool> hang{false};
  bool two_at_once = false;

 private:
  at::Tensor PartOf(const at::Tensor& all, int rank) const {
    return all.narrow(0, rank * (all.size(0) / size_), all.size(0) / size_);
  }
  void FillFrom(const at::Tensor& own, const at::Tensor& output) const {
    for (int rank = 1; rank < size_; ++rank) {
      PartOf(output, rank).copy_(own);
    }
  }

  const std::unique_ptr<comm::Communicator> inner_;
  const int size_;
  std::atomic<uint64_t> hanging_{0};
};

// Makes them, and keeps them in reach by their group's name.
class HangingFactory final : public comm::CommunicatorFactory {
 public:
  std::unique_ptr<comm::Communicator> Make(const comm::Membership& membership, comm::Communicator*) override {
    auto communicator = std::make_unique<HangingCommunicator>(membership.group, membership.size);
    made[membership.group] = communicator.get();
    return communicator;
  }
  std::unique_ptr<device::Region> Reserve(device::Device& device, int64_t bytes) override {
    return device.Reserve(bytes);
  }

  std::map<std::string, HangingCommunicator*> made;
};

}  // namespace tandem::trainer
