// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"

namespace tandem::comm {

// Forwards every call to another communicator. The base of test doubles that watch or change some calls.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  const std::string& name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void AllGather(Memory input, Memory output) override { inner_->AllGather(input, output); }
  void AllToAll(Memory input, Memory output) override { inner_->AllToAll(input, output); }
  void AllToAllRows(Memory input, const std::vector<int64_t>& sends, Memory output,
                    const std::vector<int64_t>& receives, int64_t row_bytes) override {
    inner_->AllToAllRows(input, sends, output, receives, row_bytes);
  }
  void Gather(Memory input, Memory output) override { inner_->Gather(input, output); }
  void Send(Memory input) override { inner_->Send(input); }
  void Receive(Memory output) override { inner_->Receive(output); }
  absl::Status RegisterWindow(std::shared_ptr<const device::Region> region) override {
    return inner_->RegisterWindow(std::move(region));
  }
  void Abort() override { inner_->Abort(); }
  void CheckPending() override { inner_->CheckPending(); }
  uint64_t num_collectives() const override { return inner_->num_collectives(); }
  uint64_t num_ended() const override { return inner_->num_ended(); }

 protected:
  const std::unique_ptr<Communicator> inner_;
};

}  // namespace tandem::comm
