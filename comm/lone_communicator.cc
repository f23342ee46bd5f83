// SPDX-License-Identifier: Apache-2.0
#include "comm/lone_communicator.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/collective.h"
#include "device/device.h"

namespace tandem::comm {
namespace {

void CopyOnHost(char* to, const char* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

class LoneCommunicator final : public HostCommunicator {
 public:
  LoneCommunicator(std::string name, int job_rank, CopyBytes copy)
      : HostCommunicator(std::move(name), 0, 1), job_rank_(job_rank), copy_(std::move(copy)) {}

  absl::Status RegisterWindow(std::shared_ptr<const device::Region> region) override {
    regions_.push_back(std::move(region));
    return absl::OkStatus();
  }
  void Abort() override { aborted_ = true; }

 private:
  void Exchange(const Collective& call) override {
    const std::string where = "group " + name_ + " rank " + std::to_string(job_rank_) + " " + call.operation;
    if (aborted_) {
      throw CommError(where + ": aborted");
    }
    const int64_t bytes = call.BytesFrom(0);
    if (call.BytesTo(0) != bytes) {
      throw CommError(where + " of " + std::to_string(bytes) + " bytes: the same rank sends " +
                      std::to_string(call.BytesTo(0)));
    }
    if (bytes > 0 && call.InputFor(0) != call.OutputOf(0)) {
      copy_(call.OutputOf(0), call.InputFor(0), bytes);
    }
    ++num_collectives_;
    ++num_ended_;
  }

  const int job_rank_;
  const CopyBytes copy_;
  std::vector<std::shared_ptr<const device::Region>> regions_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<Communicator> MakeLoneCommunicator(const Membership& membership, CopyBytes copy) {
  if (membership.size != 1 || membership.rank != 0) {
    throw std::invalid_argument("group " + membership.group + ": rank " + std::to_string(membership.rank) +
                                " of " + std::to_string(membership.size) + " is not alone");
  }
  return std::make_unique<LoneCommunicator>(membership.group,
                                            membership.ranks.empty() ? 0 : membership.ranks.front(),
                                            copy == nullptr ? CopyOnHost : std::move(copy));
}

}  // namespace tandem::comm
