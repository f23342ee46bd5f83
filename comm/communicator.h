// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "device/memory.h"

namespace tandem::device {
class Region;
}

namespace tandem::comm {

using device::Memory;

// A peer is lost, the deadline passed, or the communicator was aborted. what() names group, rank, operation.
class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// This machine cannot listen at the address that its worker gives to ranks. Other ranks are not involved.
class AddressError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A group of ranks that run collectives together, in the order of one stream.
//
// Every rank makes the same calls in the same order, except that a Send meets a Receive, and from one thread
// (the stream's). On the CPU a call returns when the collective is done; on a GPU it is enqueued on the
// current stream. Memory is the GPU's, and the host's for groups on CPUs, and stays alive until it is done.
// A group of one rank is a communicator like any other (lone_communicator.h). Throws CommError when a peer is
// lost or the deadline passes, and std::invalid_argument for sizes that do not fit; what a GPU notices later,
// CheckPending throws. Not thread-safe, except Abort, CheckPending and the two counts.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const std::string& name() const = 0;  // of its process group: "dp_cp"
  virtual int rank() const = 0;                 // within the group
  virtual int size() const = 0;

  // output: size * n bytes, the inputs (n bytes) of all ranks in rank order. input may be the rank-th slice
  // of output.
  virtual void AllGather(Memory input, Memory output) = 0;

  // output: size * n bytes, slice i from rank i; input: size * n bytes, slice i to rank i. Separate memory.
  virtual void AllToAll(Memory input, Memory output) = 0;

  // The same with a different number of rows, of `row_bytes` each, for each rank. The first sends[0] rows of
  // the input go to rank 0, the next sends[1] to rank 1, and so on; the output has receives[0] rows from rank
  // 0, and so on; further rows are left alone. Both lists have `size` numbers, and sends[j] on rank i equals
  // receives[i] on rank j.
  virtual void AllToAllRows(Memory input, const std::vector<int64_t>& sends, Memory output,
                            const std::vector<int64_t>& receives, int64_t row_bytes) = 0;

  // Gathers to rank 0 only. Its output: size * n bytes, the inputs (n bytes) of all ranks in rank order. On
  // other ranks output is left alone, whatever its size; they return as soon as their input may change, so
  // they may be one call ahead of rank 0.
  virtual void Gather(Memory input, Memory output) = 0;

  // From one rank to the other of a group of two: a Send meets a Receive of as many bytes. On the CPU the
  // input may change when Send returns. std::invalid_argument in a group of another size.
  virtual void Send(Memory input) = 0;
  virtual void Receive(Memory output) = 0;

  // Collective: registers `region`, which has the same size on every rank, with the group, so that
  // collectives on parts of it at the same offset on every rank need no intermediate memory. The communicator
  // keeps the region alive. Returns FailedPrecondition with the reason if the region is refused; collectives
  // work anyway. Throws CommError.
  virtual absl::Status RegisterWindow(std::shared_ptr<const device::Region> region) = 0;

  // No new call starts, and pending calls end, or the process exits. Callable from any thread.
  virtual void Abort() = 0;

  // Throws CommError if a collective that was started has failed, or has not ended within the deadline. On
  // the CPU the calls themselves throw.
  virtual void CheckPending() = 0;

  // How many collectives have started, and how many of them have ended (on a GPU as of the last
  // CheckPending); for the shared page and for tests. They do not block.
  virtual uint64_t num_collectives() const = 0;
  virtual uint64_t num_ended() const = 0;
};

}  // namespace tandem::comm
