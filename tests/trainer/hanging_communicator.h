// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "comm/communicator_factory.h"
#include "device/device.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/comm/thread_communicator.h"

namespace tandem::trainer {

// Rank 0 of a group whose other ranks send what it sends. With `hang`, all-gathers start, as on a GPU, and
// never end. With two_at_once each of them is two collectives, of which the second one hangs.
class HangingCommunicator final : public comm::ForwardingCommunicator {
 public:
  HangingCommunicator(std::string name, int size)
      : ForwardingCommunicator(std::move(comm::MakeThreadCommunicators(name, 1)[0])), size_(size) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }
  void AllGather(comm::Memory input, comm::Memory output) override {
    if (!hang || two_at_once) {
      inner_->AllGather(input, Own(output));
      FillFromOwn(output);
    }
    hanging_ += hang ? 1 : 0;
  }
  void AllToAll(comm::Memory input, comm::Memory output) override {
    inner_->AllToAll(Own(input), Own(output));
    FillFromOwn(output);
  }
  absl::Status RegisterWindow(std::shared_ptr<const device::Region>) override { return absl::OkStatus(); }
  void CheckPending() override {}
  uint64_t num_collectives() const override { return inner_->num_collectives() + hanging_; }

  std::atomic<bool> hang{false};
  bool two_at_once = false;

 private:
  comm::Memory Own(comm::Memory all) const { return {.begin = all.begin, .bytes = all.bytes / size_}; }
  void FillFromOwn(comm::Memory output) const {
    const comm::Memory own = Own(output);
    for (int rank = 1; rank < size_; ++rank) {
      std::memcpy(output.begin + rank * own.bytes, own.begin, static_cast<size_t>(own.bytes));
    }
  }

  const int size_;
  std::atomic<uint64_t> hanging_{0};
};

// Makes HangingCommunicators and keeps pointers to them by their group's name.
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
