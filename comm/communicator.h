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

// This machine cannot listen at the data address that its worker passed to the ranks. The fault is this
// machine's alone.
class AddressError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A group of ranks that run collectives together, in the order of one stream.
//
// Every rank makes the same calls in the same order, except that one rank's Send matches another's Receive.
// All calls of a rank come from one thread (the stream's). On the CPU a call returns when the collective is
// done; on a GPU the call enqueues it on the current stream, and may first wait for other ranks. Memory is in
// the GPU, or in the host for groups on CPUs, and must stay alive until the collective is done. A group of
// one rank has a communicator like any other (lone_communicator.h). Calls throw CommError if a peer is lost
// or the deadline passes, and std::invalid_argument if sizes do not fit. CheckPending throws errors that a
// GPU notices later, or while a call does not return. Not thread-safe, except Abort, CheckPending and the two
// counts.
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

  // Does what AllToAll does, with a different number of rows, of `row_bytes` each, for each rank. The first
  // sends[0] rows of the input go to rank 0, the next sends[1] to rank 1, and so on; the output has
  // receives[0] rows from rank 0, and so on; further rows stay unchanged. Both lists have `size` numbers, and
  // sends[j] on rank i equals receives[i] on rank j.
  virtual void AllToAllRows(Memory input, const std::vector<int64_t>& sends, Memory output,
                            const std::vector<int64_t>& receives, int64_t row_bytes) = 0;

  // Gathers to rank 0 only. Its output: size * n bytes, the inputs (n bytes) of all ranks in rank order.
  // Other ranks ignore `output`, whatever its size. They return as soon as their input may change, so they
  // may be one call ahead of rank 0.
  virtual void Gather(Memory input, Memory output) = 0;

  // In a group of two ranks, one calls Send and the other calls Receive with as many bytes. On the CPU the
  // input may change once Send returns. Throws std::invalid_argument in a group of another size.
  virtual void Send(Memory input) = 0;
  virtual void Receive(Memory output) = 0;

  // Collective: registers `region`, which has the same size on every rank, with the group, so that
  // collectives on parts of it at the same offset on every rank need no intermediate memory. The communicator
  // keeps the region alive. Returns FailedPrecondition with the reason if the region is refused; collectives
  // work anyway. Throws CommError.
  virtual absl::Status RegisterWindow(std::shared_ptr<const device::Region> region) = 0;

  // Makes every later call throw CommError. Ends pending calls if it can; otherwise the process must exit.
  // Callable from any thread.
  virtual void Abort() = 0;

  // Throws CommError if a collective that was started has failed, or has not ended within the deadline. On
  // the CPU the calls themselves throw.
  virtual void CheckPending() = 0;

  // The number of collectives that have started, and of those that have ended (on a GPU, as of the last
  // CheckPending). Used by the shared page and by tests. Neither blocks.
  virtual uint64_t num_collectives() const = 0;
  virtual uint64_t num_ended() const = 0;
};

}  // namespace tandem::comm
