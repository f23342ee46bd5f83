// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/thread_groups.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"

namespace tandem::comm {

struct ThreadGroups::State {
  const WaitUntil wait_until;
  std::mutex mu;
  std::map<std::string, std::vector<std::unique_ptr<Communicator>>> not_joined;  // by prefix and rank; mu
};

class ThreadGroups::Factory final : public CommunicatorFactory {
 public:
  explicit Factory(State& state) : state_(state) {}

  std::unique_ptr<Communicator> Make(const Membership& membership, Communicator*) override {
    const std::lock_guard lock(state_.mu);
    auto& group = state_.not_joined[membership.prefix];
    if (group.empty()) {
      group = MakeThreadCommunicators(membership.group, membership.size, state_.wait_until);
    }
    std::unique_ptr<Communicator> own = std::move(group.at(static_cast<size_t>(membership.rank)));
    if (own == nullptr) {
      throw std::logic_error("rank " + std::to_string(membership.rank) + " joins " + membership.prefix +
                             " twice");
    }
    return own;
  }
  std::unique_ptr<device::Region> Reserve(device::Device& device, int64_t bytes) override {
    return device.Reserve(bytes);
  }

 private:
  State& state_;
};

ThreadGroups::ThreadGroups(WaitUntil wait_until) : state_(new State{.wait_until = std::move(wait_until)}) {}
ThreadGroups::~ThreadGroups() = default;

std::unique_ptr<CommunicatorFactory> ThreadGroups::MakeFactory() {
  return std::make_unique<Factory>(*state_);
}

}  // namespace tandem::comm
