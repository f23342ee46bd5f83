// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "comm/communicator.h"
#include "parallel/group_options.h"

namespace tandem::device {
class Device;
class Region;
}  // namespace tandem::device

namespace tandem::comm {

// The rendezvous of one attempt: write-once set, blocking get. The trainer's goes through the worker's
// socket; that of tests is a map. Thread-safe.
class Store {
 public:
  virtual ~Store() = default;

  // Setting a key again to the same value is allowed. Throws CommError.
  virtual void Set(const std::string& key, const std::string& value) = 0;

  // Blocks until the key is set. Throws CommError, naming the key, if it is not set within `patience` (by a
  // monotonic clock).
  virtual std::string Get(const std::string& key, absl::Duration patience) = 0;
};

// The inputs that the creation of every group needs.
struct Rendezvous {
  std::shared_ptr<Store> store;
  std::string data_address;  // of this machine, for collectives over TCP
  absl::Duration timeout;    // of creating a group, and of every collective
};

// One process group as this rank joins it.
struct Membership {
  std::string group;   // "dp_cp"
  std::string prefix;  // of the group's keys in the store, unique per group and attempt
  int rank = 0;        // within the group
  int size = 1;
  std::vector<int> ranks;  // job ranks in the group's order, for error messages; empty: 0 to size - 1
  // Upper bound on the thread blocks of one collective on a GPU (parallel::BoundOfCtas); 0: NCCL chooses.
  int ctas = 0;
  parallel::GroupOptions options;  // for NCCL; specs that set any for CPUs are refused
  // The group, with the same members in the same order, that this one is a clone of: the first Make of this
  // group gets a communicator of that one as `live`, if this rank has made one. Empty: this group is no
  // clone.
  std::string clone_of;
};

// Makes the communicators of one kind of device.
class CommunicatorFactory {
 public:
  virtual ~CommunicatorFactory() = default;

  // Collective over the group. live: null, or a communicator of the same members from this factory, which is
  // cloned if that saves something. Throws CommError; AddressError if Gloo cannot listen at data_address.
  virtual std::unique_ptr<Communicator> Make(const Membership& membership, Communicator* live) = 0;

  // Device memory that communicators can register (Communicator::RegisterWindow). Throws device::OutOfMemory.
  virtual std::unique_ptr<device::Region> Reserve(device::Device& device, int64_t bytes) = 0;
};

// Groups over TCP between processes (c10d's ProcessGroupGloo), for bytes of any type in host memory, which
// need not be pinned or registered. Making a group is a barrier: it blocks until all of its ranks have made
// it. data_address: the host name or IP address at which other ranks reach this machine; the factory binds an
// ephemeral port there. A group of one rank needs neither store nor network. CommError names group, rank,
// operation and what the peer did. Gloo cannot cancel a waiting call: after Abort or an error, such a call
// ends at its timeout or with the process. The caller must have made the process ignore SIGPIPE, because Gloo
// writes to peers that are gone.
std::unique_ptr<CommunicatorFactory> MakeGlooFactory(Rendezvous rendezvous);

}  // namespace tandem::comm
