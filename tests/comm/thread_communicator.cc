// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/thread_communicator.h"

#include <atomic>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "comm/collective.h"
#include "device/device.h"

namespace tandem::comm {
namespace {

// What the ranks of a group share: a place per rank for the call it is in, and barriers before and behind it.
class Meeting {
 public:
  Meeting(int size, WaitUntil wait_until)
      : wait_until_(std::move(wait_until)), calls_(static_cast<size_t>(size)) {}

  int size() const { return static_cast<int>(calls_.size()); }

  // Returns the calls of all ranks once every rank is in one; they stay until Leave.
  const std::vector<Collective>& Enter(int rank, const Collective& call, const std::string& where) {
    calls_[static_cast<size_t>(rank)] = call;
    Arrive(where);
    return calls_;
  }

  // Waits until every rank has read the calls, and what they point to: a rank may free its memory then.
  // Nothing ends this wait, since a rank that reads waits for nothing.
  void Leave() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      const absl::MutexLock lock(&mu_);
      --reading_;
    }
    changed_.SignalAll();
    const auto have_read = [this] {
      const absl::MutexLock lock(&mu_);
      return reading_ == 0;
    };
    if (wait_until_) {
      wait_until_(have_read);
      return;
    }
    const absl::MutexLock lock(&mu_);
    while (reading_ > 0) {
      changed_.Wait(&mu_);
    }
  }

  // Ends every pending and later call of all ranks.
  void End(const std::string& why) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      const absl::MutexLock lock(&mu_);
      if (ended_.empty()) {
        ended_ = why;
      }
    }
    changed_.SignalAll();
  }

 private:
  void Arrive(const std::string& where) ABSL_LOCKS_EXCLUDED(mu_) {
    uint64_t generation = 0;
    {
      absl::ReleasableMutexLock lock(&mu_);
      if (!ended_.empty()) {
        throw CommError(where + ": " + ended_);
      }
      generation = generation_;
      if (++arrived_ == size()) {
        arrived_ = 0;
        reading_ = size();
        ++generation_;
        lock.Release();
        changed_.SignalAll();
        return;
      }
      if (!wait_until_) {
        while (IsOpen(generation)) {
          changed_.Wait(&mu_);
        }
        ThrowIfNotMet(generation, where);
        return;
      }
    }
    wait_until_([&] {
      const absl::MutexLock lock(&mu_);
      return !IsOpen(generation);
    });
    const absl::MutexLock lock(&mu_);
    ThrowIfNotMet(generation, where);
  }

  // Whether ranks still arrive at the barrier of that generation.
  bool IsOpen(uint64_t generation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return generation_ == generation && ended_.empty();
  }

  // A rank that left after all had arrived does not undo that.
  void ThrowIfNotMet(uint64_t generation, const std::string& where) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (generation_ == generation) {
      throw CommError(where + ": " + ended_);
    }
  }

  const WaitUntil wait_until_;
  std::vector<Collective> calls_;  // [r] is written by rank r alone, between its Leave and its Enter
  absl::Mutex mu_;
  absl::CondVar changed_;
  int arrived_ ABSL_GUARDED_BY(mu_) = 0;
  int reading_ ABSL_GUARDED_BY(mu_) = 0;  // ranks between Enter and Leave
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  std::string ended_ ABSL_GUARDED_BY(mu_);  // why; empty: not ended
};

class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(std::string name, int rank, std::shared_ptr<Meeting> meeting)
      : HostCommunicator(std::move(name), rank, meeting->size()), meeting_(std::move(meeting)) {}

  ~ThreadCommunicator() override { meeting_->End("rank " + std::to_string(rank_) + " is gone"); }

  void Abort() override {
    aborted_ = true;
    meeting_->End("rank " + std::to_string(rank_) + " aborted");
  }

 private:
  // Copies what is for this rank of every rank's input, in rank order.
  void Exchange(const Collective& mine) override {
    const std::string where = "group " + name_ + " rank " + std::to_string(rank_) + " " + mine.operation;
    if (aborted_) {
      throw CommError(where + ": aborted");
    }
    num_collectives_.fetch_add(1, std::memory_order_relaxed);
    const std::vector<Collective>& calls = meeting_->Enter(rank_, mine, where);
    const std::string difference = DifferenceOf(calls, mine);
    if (difference.empty()) {
      Copy(calls, mine);
    } else {
      meeting_->End("the ranks call different collectives");
    }
    meeting_->Leave();
    if (!difference.empty()) {
      throw CommError(where + difference);
    }
    num_ended_.fetch_add(1, std::memory_order_relaxed);
  }

  // Empty: every rank sends what this one receives, in the same collective.
  std::string DifferenceOf(const std::vector<Collective>& calls, const Collective& mine) const {
    for (size_t peer = 0; peer < calls.size(); ++peer) {
      const int64_t sent = calls[peer].BytesTo(rank_);
      const int64_t received = mine.BytesFrom(static_cast<int>(peer));
      if (std::string_view(calls[peer].operation) != mine.operation || sent != received) {
        return " of " + std::to_string(received) + " bytes: rank " + std::to_string(peer) + " is in " +
               calls[peer].operation + " of " + std::to_string(sent) + " bytes";
      }
    }
    return "";
  }

  void Copy(const std::vector<Collective>& calls, const Collective& mine) const {
    for (int peer = 0; peer < size() && mine.output != nullptr; ++peer) {
      const auto bytes = static_cast<size_t>(mine.BytesFrom(peer));
      const char* const from = bytes > 0 ? calls[static_cast<size_t>(peer)].InputFor(rank_) : nullptr;
      char* const to = mine.OutputOf(peer);
      if (bytes > 0 && from != to) {
        std::memcpy(to, from, bytes);
      }
    }
  }

  const std::shared_ptr<Meeting> meeting_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(const std::string& name, int size,
                                                                   WaitUntil wait_until) {
  if (size <= 0) {
    throw std::invalid_argument("group " + name + " of " + std::to_string(size) + " ranks");
  }
  const auto meeting = std::make_shared<Meeting>(size, std::move(wait_until));
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(name, rank, meeting));
  }
  return communicators;
}

}  // namespace tandem::comm
