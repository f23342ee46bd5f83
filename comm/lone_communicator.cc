// SPDX-License-Identifier: Apache-2.0
#include "comm/lone_communicator.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "comm/collective.h"
#include "device/device.h"

namespace tandem::comm {
namespace {

class LoneCommunicator final : public Communicator {
 public:
  LoneCommunicator(std::string name, int job_rank) : name_(std::move(name)), job_rank_(job_rank) {}

  const std::string& name() const override { return name_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void AllGather(const at::Tensor& input, at::Tensor& output) override {
    Copy(CheckAllGather(name_, 1, input, output), input.view(-1), output.view(-1));
  }
  void AllToAll(const at::Tensor& input, at::Tensor& output) override {
    Copy(CheckAllToAll(name_, 1, input, output), input.view(-1), output.view(-1));
  }
  void AllToAllRows(const at::Tensor& input, const std::vector<int64_t>& sends, at::Tensor& output,
                    const std::vector<int64_t>& receives) override {
    const Collective call = CheckAllToAllRows(name_, 1, input, sends, output, receives);
    if (sends != receives) {
      throw CommError(Where(call) + " of " + std::to_string(call.BytesFrom(0)) +
                      " bytes: the same rank sends " + std::to_string(call.BytesTo(0)));
    }
    Copy(call, input.narrow(0, 0, sends[0]), output.narrow(0, 0, receives[0]));
  }
  void Gather(const at::Tensor& input, at::Tensor& output) override {
    Copy(CheckGather(name_, 0, 1, input, output), input.view(-1), output.view(-1));
  }
  void Send(const at::Tensor& input) override { CheckSend(name_, 0, 1, input); }
  void Receive(at::Tensor& output) override { CheckReceive(name_, 0, 1, output); }

  absl::Status RegisterWindow(std::shared_ptr<const device::Region> region) override {
    regions_.push_back(std::move(region));
    return absl::OkStatus();
  }
  void Abort() override { aborted_ = true; }

  void CheckPending() override ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    while (!pending_.empty() && HasEnded(pending_.front())) {
      free_.push_back(std::move(pending_.front()));
      pending_.pop_front();
      ++num_ended_;
    }
  }

  uint64_t num_collectives() const override { return num_collectives_; }
  uint64_t num_ended() const override { return num_ended_; }

 private:
  std::string Where(const Collective& call) const {
    return "group " + name_ + " rank " + std::to_string(job_rank_) + " " + call.operation;
  }

  void Copy(const Collective& call, const at::Tensor& from, const at::Tensor& to) ABSL_LOCKS_EXCLUDED(mu_) {
    if (aborted_) {
      throw CommError(Where(call) + ": aborted");
    }
    if (call.output != nullptr && call.InputFor(0) != call.OutputOf(0)) {
      to.copy_(from, /*non_blocking=*/true);
    }
    const c10::Device device = to.device();
    if (device.is_cpu()) {
      ++num_collectives_;
      ++num_ended_;
      return;
    }
    // Not under the lock: a device that takes no more work keeps this call, and must not keep CheckPending.
    c10::Event end = FreeEvent(device.type());
    end.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    const absl::MutexLock lock(&mu_);
    pending_.push_back(std::move(end));
    ++num_collectives_;
  }

  c10::Event FreeEvent(c10::DeviceType type) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (free_.empty()) {
      return c10::Event(type);
    }
    c10::Event event = std::move(free_.back());
    free_.pop_back();
    return event;
  }

  // A device that has failed reports it on its streams.
  static bool HasEnded(const c10::Event& event) {
    try {
      return event.query();
    } catch (const c10::Error&) {
      return false;
    }
  }

  const std::string name_;
  const int job_rank_;
  std::vector<std::shared_ptr<const device::Region>> regions_;
  std::atomic<bool> aborted_{false};
  absl::Mutex mu_;
  std::deque<c10::Event> pending_ ABSL_GUARDED_BY(mu_);  // behind each collective, in their order
  std::vector<c10::Event> free_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint64_t> num_collectives_{0};
  std::atomic<uint64_t> num_ended_{0};
};

}  // namespace

std::unique_ptr<Communicator> MakeLoneCommunicator(const Membership& membership) {
  if (membership.size != 1 || membership.rank != 0) {
    throw std::invalid_argument("group " + membership.group + ": rank " + std::to_string(membership.rank) +
                                " of " + std::to_string(membership.size) + " is not alone");
  }
  return std::make_unique<LoneCommunicator>(membership.group,
                                            membership.ranks.empty() ? 0 : membership.ranks.front());
}

}  // namespace tandem::comm
