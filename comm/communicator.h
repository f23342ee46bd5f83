// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace at {
class Tensor;
}

namespace tandem::device {
class Region;
}

namespace tandem::comm {

// A peer is lost, the deadline passed, or the communicator was aborted. what() names group, rank, operation.
class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// This machine cannot listen at the address that its worker gives ranks; no other rank has anything to do
// with it.
class AddressError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A group of ranks that run collectives together, in the order of one stream.
//
// Every rank makes the same calls in the same order, from one thread (the stream's). On the CPU a call
// returns when the collective is done; on a GPU it is enqueued on the current stream. Tensors are contiguous,
// any dtype (bytes are moved), and stay alive until it is done. A group of one rank is a communicator like
// any other (lone_communicator.h). Throws CommError when a peer is lost or the deadline passes; what a GPU
// notices later, CheckPending throws. Not thread-safe, except Abort, CheckPending and the two counts.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const std::string& name() const = 0;  // of its process group: "dp_cp"
  virtual int rank() const = 0;                 // within the group
  virtual int size() const = 0;

  // output: [size * n], the inputs [n] of all ranks in rank order. input may be the rank-th slice of output.
  virtual void AllGather(const at::Tensor& input, at::Tensor& output) = 0;

  // output: [size * n], slice i from rank i; input: [size * n], slice i to rank i. Separate memory.
  virtual void AllToAll(const at::Tensor& input, at::Tensor& output) = 0;

  // The same with other numbers of rows for each rank: the first sends[0] rows of the input to rank 0, and so
  // on, and in the output receives[0] rows from rank 0, and so on; rows behind these are left alone. Both
  // have `size` numbers, and what a rank sends to another is what that one receives from it. Matrices.
  virtual void AllToAllRows(const at::Tensor& input, const std::vector<int64_t>& sends, at::Tensor& output,
                            const std::vector<int64_t>& receives) = 0;

  // To rank 0 alone. output there: [size * n], the inputs [n] of all ranks in rank order; on the others it is
  // left alone, whatever its size. These return once their input may change, and may be a call ahead.
  virtual void Gather(const at::Tensor& input, at::Tensor& output) = 0;

  // Collective: makes `region`, as large on every rank, known to the group, so that collectives on parts of
  // it, at the same offset on every rank, need no memory in between. The communicator keeps the region as
  // long as it lives. FailedPrecondition where it is refused, with the reason; collectives work all the same.
  // Throws CommError.
  virtual absl::Status RegisterWindow(std::shared_ptr<const device::Region> region) = 0;

  // No new call starts, and pending ones end, or the process does. Callable from any thread.
  virtual void Abort() = 0;

  // Throws CommError where a collective that was started has failed, or has not ended within the deadline. On
  // the CPU the calls themselves throw.
  virtual void CheckPending() = 0;

  // Collectives started so far, for the shared page and for tests; and those of them that have ended, on a
  // GPU as of the last CheckPending: neither waits for anything.
  virtual uint64_t num_collectives() const = 0;
  virtual uint64_t num_ended() const = 0;
};

}  // namespace tandem::comm
