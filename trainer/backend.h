#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/store.h"
#include "fsdp/shard_work.h"
#include "trainer/gradient_norm.h"

namespace tandem::device {
class Device;
class StreamFactory;
}  // namespace tandem::device
namespace tandem::ops {
class Operations;
}

namespace tandem::trainer {

// What the creation of every group needs to know.
struct Rendezvous {
  std::shared_ptr<comm::Store> store;
  std::string data_address;  // of this machine, for what goes over TCP
  absl::Duration timeout;    // for the creation, and for every collective
};

// One group as this rank joins it.
struct GroupMembership {
  std::string name;
  std::string prefix;  // of its keys in the store
  int rank = 0;        // within the group
  int size = 1;
};

// What a rank runs on: one device, and what of the rest of Tandem is made for its kind. Outlives all that it
// made. One per rank.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual device::Device& device() = 0;
  virtual const ops::Operations& operations() const = 0;
  virtual fsdp::MakeShardWork shard_work() const = 0;
  virtual std::unique_ptr<GradientNorm> MakeGradientNorm(int ranks) = 0;

  // Collective. For tensors on the device. clone_of: a live group with the same members, or null.
  virtual std::unique_ptr<comm::Communicator> MakeCommunicator(const GroupMembership& group,
                                                               const Rendezvous& rendezvous,
                                                               comm::Communicator* clone_of) = 0;

  // Whether collectives can hang without the host noticing: comm::Watch is for these.
  virtual bool needs_watch() const = 0;
};

std::unique_ptr<Backend> MakeCpuBackend();

// On these streams, which outlive it (tests).
std::unique_ptr<Backend> MakeCpuBackend(device::StreamFactory& streams);

// On GPU `index` of those that this process sees. In programs that are built with CUDA only.
std::unique_ptr<Backend> MakeCudaBackend(int index);

// Collective. For tensors of the host, on any device: reports, checkpoints.
std::unique_ptr<comm::Communicator> MakeHostCommunicator(const GroupMembership& group,
                                                         const Rendezvous& rendezvous);

}  // namespace tandem::trainer
