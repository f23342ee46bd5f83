#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator_factory.h"
#include "comm/thread_communicator.h"
#include "device/device.h"

namespace tandem::parity {

// The process groups of ranks that are threads of one process. Thread-safe.
class ThreadGroups {
 public:
  // wrap: what rank 0 uses instead of a communicator that was made, with its group's name. wait_until: how
  // ranks wait for each other; empty: as threads do.
  using Wrap = std::function<std::unique_ptr<comm::Communicator>(std::unique_ptr<comm::Communicator>)>;
  ThreadGroups(comm::WaitUntil wait_until, Wrap wrap)
      : wait_until_(std::move(wait_until)), wrap_(std::move(wrap)) {}

  // Rank `rank`'s part of the number-th group of that name.
  std::unique_ptr<comm::Communicator> Join(const std::string& group, int number, int rank, int size) {
    const std::lock_guard<std::mutex> lock(mu_);
    auto& members = groups_[{group, number}];
    if (members.empty()) {
      members = comm::MakeThreadCommunicators(group, size, wait_until_);
      if (wrap_) {
        members[0] = wrap_(std::move(members[0]));
      }
    }
    return std::move(members.at(rank));
  }

 private:
  const comm::WaitUntil wait_until_;
  const Wrap wrap_;
  std::mutex mu_;
  std::map<std::pair<std::string, int>, std::vector<std::unique_ptr<comm::Communicator>>> groups_;
};

// One rank's factory over them.
class ThreadFactory final : public comm::CommunicatorFactory {
 public:
  explicit ThreadFactory(ThreadGroups& groups) : groups_(groups) {}

  std::unique_ptr<comm::Communicator> Make(const comm::Membership& membership, comm::Communicator*) override {
    return groups_.Join(membership.group, made_[membership.group]++, membership.rank, membership.size);
  }
  std::unique_ptr<device::Region> Reserve(device::Device& device, int64_t bytes) override {
    return device.Reserve(bytes);
  }

 private:
  ThreadGroups& groups_;
  std::map<std::string, int> made_;
};

}  // namespace tandem::parity
