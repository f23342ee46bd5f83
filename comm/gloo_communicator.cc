// SPDX-License-Identifier: Apache-2.0
#define USE_C10D_GLOO
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <sched.h>

#include <atomic>
#include <cstring>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "comm/collective.h"
#include "comm/communicator.h"
#include "comm/communicator_factory.h"
#include "comm/lone_communicator.h"
#include "device/device.h"
#include "platform/clock.h"

namespace tandem::comm {
namespace {

// Implements only what ProcessGroupGloo calls: it sets its own addresses, and waits for and gets those of
// its peers.
class RendezvousStore final : public c10d::Store {
 public:
  RendezvousStore(std::shared_ptr<comm::Store> store, std::string prefix, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), store_(std::move(store)), prefix_(std::move(prefix)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<RendezvousStore>(store_, prefix_, getTimeout());
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    store_->Set(Key(key), std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const std::string value = store_->Get(Key(key), absl::FromChrono(getTimeout()));
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    const platform::Clock& clock = platform::SteadyClock();
    const absl::Time deadline = clock.Now() + absl::FromChrono(timeout);
    for (const std::string& key : keys) {
      store_->Get(Key(key), deadline - clock.Now());
    }
  }

  int64_t add(const std::string& key, int64_t) override { Unused("add", key); }
  bool deleteKey(const std::string& key) override { Unused("deleteKey", key); }
  bool check(const std::vector<std::string>&) override { Unused("check", ""); }
  int64_t getNumKeys() override { Unused("getNumKeys", ""); }

 private:
  std::string Key(const std::string& key) const { return prefix_ + "/" + key; }

  [[noreturn]] void Unused(const std::string& call, const std::string& key) const {
    throw CommError("rendezvous: Gloo calls " + call + " for key '" + key +
                    "', which this version never did");
  }

  const std::shared_ptr<comm::Store> store_;
  const std::string prefix_;
};

// Returns the message of an error of LibTorch without its stack.
std::string TextOf(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch == nullptr ? error.what() : of_torch->what_without_backtrace();
}

// Names the rank at a place of the group. ranks: the job's ranks in the order of the group; empty: they
// equal the places.
std::string RankText(const std::vector<int>& ranks, int place) {
  return "rank " + std::to_string(ranks.empty() ? place : ranks.at(place));
}

// Gloo's text begins with the place in its source; the rest is what a reader needs.
std::string Reason(const std::string& text, const std::string& peer, absl::Duration timeout) {
  if (text.find("imed out") != std::string::npos) {
    return peer + " did not take part within " + absl::FormatDuration(timeout) + " (" + text + ")";
  }
  if (text.find("onnection closed") != std::string::npos ||
      text.find("onnection reset") != std::string::npos || text.find("roken pipe") != std::string::npos) {
    return peer + " closed the connection, it died or left (" + text + ")";
  }
  return peer + ": " + text;
}

class GlooCommunicator final : public HostCommunicator {
 public:
  GlooCommunicator(const Membership& membership, absl::Duration timeout,
                   c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo)
      : HostCommunicator(membership.group, membership.rank, membership.size),
        ranks_(membership.ranks),
        timeout_(timeout),
        gloo_(std::move(gloo)) {}

  void Abort() override { aborted_ = true; }

 private:
  struct Transfer {
    int peer = 0;
    c10::intrusive_ptr<c10d::Work> work;
  };

  // Uses sends and receives, because Gloo's own collectives hand over to a thread and copy once more
  // (all-gather), and their errors do not say which rank was lost.
  void Exchange(const Collective& call) override {
    const std::string where = "group " + name_ + " " + RankText(ranks_, rank_) + " " + call.operation;
    if (aborted_) {
      throw CommError(where + ": aborted");
    }
    const uint64_t sequence = num_collectives_.fetch_add(1, std::memory_order_relaxed);
    // At most this collective and the next are in flight, so a few bits tell them apart.
    const int tag = static_cast<int>(sequence & 0xFFFF);
    std::vector<Transfer> transfers;
    int peer = rank_;
    try {
      for (int step = 1; step < size_ && call.output != nullptr; ++step) {
        peer = (rank_ + size_ - step) % size_;
        if (call.BytesFrom(peer) == 0) {
          continue;
        }
        std::vector<at::Tensor> to = {Bytes(call.OutputOf(peer), call.BytesFrom(peer))};
        transfers.push_back({peer, gloo_->recv(to, peer, tag)});
      }
      for (int step = 1; step < size_; ++step) {
        peer = (rank_ + step) % size_;
        if (call.BytesTo(peer) == 0) {
          continue;
        }
        std::vector<at::Tensor> from = {Bytes(const_cast<char*>(call.InputFor(peer)), call.BytesTo(peer))};
        transfers.push_back({peer, gloo_->send(from, peer, tag)});
      }
      if (call.output != nullptr && call.BytesTo(rank_) > 0) {
        const char* const own = call.InputFor(rank_);
        char* const place = call.OutputOf(rank_);
        if (own != place) {
          std::memcpy(place, own, static_cast<size_t>(call.BytesTo(rank_)));
        }
      }
      for (Transfer& transfer : transfers) {
        peer = transfer.peer;
        transfer.work->wait();
      }
      num_ended_.fetch_add(1, std::memory_order_relaxed);
    } catch (const std::exception& error) {
      aborted_ = true;  // the buffers of this call may still be written, so no further call may start
      throw CommError(where + ": " + Reason(TextOf(error), RankText(ranks_, peer), timeout_));
    }
  }

  static at::Tensor Bytes(char* begin, int64_t size) { return at::from_blob(begin, {size}, at::kByte); }

  const std::vector<int> ranks_;
  const absl::Duration timeout_;
  const c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  std::atomic<bool> aborted_{false};
};

// Gloo's device thread spins on epoll while a caller holds a connection's lock. If it preempts that caller
// on wake-up, both lose a scheduler tick: 4 ms instead of 0.1 ms for 64 kB between two processes on two
// cores. A SCHED_BATCH thread never preempts on wake-up, and the device thread inherits that policy.
std::shared_ptr<gloo::transport::Device> MakeDevice(const std::string& data_address) {
  std::shared_ptr<gloo::transport::Device> device;
  std::exception_ptr error;
  std::thread([&] {
    const sched_param priority{};
    sched_setscheduler(0, SCHED_BATCH, &priority);  // if it is refused, Gloo is only slower
    try {
      device = c10d::ProcessGroupGloo::createDeviceForHostname(data_address);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  return device;
}

class GlooFactory final : public CommunicatorFactory {
 public:
  explicit GlooFactory(Rendezvous rendezvous) : rendezvous_(std::move(rendezvous)) {}

  // Ignores `live`: two communicators of Gloo have nothing to share.
  std::unique_ptr<Communicator> Make(const Membership& membership, Communicator*) override {
    if (membership.size == 1) {
      return MakeLoneCommunicator(membership);
    }
    const std::string where =
        "group " + membership.group + " " + RankText(membership.ranks, membership.rank) + ", one of " +
        std::to_string(membership.size) + ", creation on " + rendezvous_.data_address + ": ";
    std::shared_ptr<gloo::transport::Device> device;
    try {
      device = MakeDevice(rendezvous_.data_address);
    } catch (const std::exception& error) {
      throw AddressError(where + TextOf(error) + "; see --data-address of its worker");
    }
    try {
      const auto milliseconds = absl::ToChronoMilliseconds(rendezvous_.timeout);
      const auto options = c10d::ProcessGroupGloo::Options::create(milliseconds);
      options->threads = 1;
      options->devices.push_back(std::move(device));
      auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<RendezvousStore>(rendezvous_.store, membership.prefix, milliseconds),
          membership.rank, membership.size, options);
      return std::make_unique<GlooCommunicator>(membership, rendezvous_.timeout, std::move(gloo));
    } catch (const std::exception& error) {
      throw CommError(where + TextOf(error));
    }
  }
  std::unique_ptr<device::Region> Reserve(device::Device& device, int64_t bytes) override {
    return device.Reserve(bytes);
  }

 private:
  const Rendezvous rendezvous_;
};

}  // namespace

std::unique_ptr<CommunicatorFactory> MakeGlooFactory(Rendezvous rendezvous) {
  return std::make_unique<GlooFactory>(std::move(rendezvous));
}

}  // namespace tandem::comm
