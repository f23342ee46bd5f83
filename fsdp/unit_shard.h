#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"
#include "fsdp/initialize.h"
#include "fsdp/layout.h"
#include "fsdp/optimizer.h"
#include "fsdp/pieces.h"

namespace tandem::comm {
class Communicator;
}
namespace tandem::device {
class Device;
}

namespace tandem::fsdp {

class ShardKernels;
class UnitKernels;

// Made once, when a program is bound; then runs on the same memory in every step, on the current stream.
// Allocates nothing that outlives the call. Throws CommError.
using BoundCall = std::function<void()>;

// Element types of a unit, by role. All three are fp64, or main is fp32 and the others are fp32 or bf16.
// Where compute is not main, weights are published: a shard of them in the compute type, which is what is
// gathered.
struct UnitTypes {
  c10::ScalarType main;       // weights, moments, accumulator
  c10::ScalarType compute;    // published shard, gathered parameters
  c10::ScalarType transport;  // contribution and staging
};

// The memory of one instruction, by role. Shards are [ShardElements], gathered buffers, contributions and
// staging [GatheredElements] (fsdp/layout.h); gaps between parameters are carried, never read.
struct StateMemory {
  device::Memory weights;
  device::Memory exp_avg;
  device::Memory exp_avg_sq;
  device::Memory published;  // begin == nullptr where weights are not published
};
struct ReduceMemory {
  device::Memory contribution;  // this rank's, of one microbatch
  device::Memory staging;       // holds garbage before and after
  device::Memory gradients;     // the accumulator
  device::Memory norm_terms;    // begin == nullptr: not the run's last reduction, none are written
};
struct OptimizerMemory {
  device::Memory gradients;
  device::Memory outcome;  // of the run that the gradients are from
  device::Memory inputs;   // of this run
  StateMemory state;
  device::Memory update_norms;  // of this run: a ParameterNorms for each parameter of the layout
  device::Memory scratch;
};

// One unit on one rank, sharded over its inner group: what it does to memory that the caller lays out. Owns
// no memory of the job and no communicator. Every function that binds throws std::invalid_argument, naming
// the unit, where a size does not fit.
class UnitShard {
 public:
  // device and kernels are of the same kind and outlive it and what it binds.
  UnitShard(std::string name, Layout layout, int num_ranks, int rank, UnitTypes types, device::Device& device,
            const ShardKernels& kernels);
  ~UnitShard();
  UnitShard(UnitShard&&) noexcept;

  const std::string& name() const { return name_; }
  const Layout& layout() const { return layout_; }
  const std::vector<Piece>& pieces() const { return pieces_; }  // of the parameters, in this rank's shard
  Range owned() const { return owned_; }                        // in the flat buffer, padding excluded
  int64_t shard_bytes() const;                                  // of weights, moments and accumulator
  int64_t published_bytes() const;                              // 0 where weights are not published
  int64_t gathered_bytes() const;                               // of parameters
  int64_t contribution_bytes() const;                           // and of staging

  // Weights as `inits`, one for each parameter of the layout, say; moments zero. Every element depends on
  // seed, parameter name and its global index alone (initialize.h). Computed on the host; blocks.
  void Initialize(uint64_t seed, const std::vector<ParameterInit>& inits, const StateMemory& state) const;

  // The weights as they are, to `published`; nothing where weights are not published. For the start of a job:
  // later every OptimizerStep does it.
  void Publish(const StateMemory& state) const;

  // All-gather of every rank's `shard`: the published one, where weights are published.
  BoundCall BindUnshard(comm::Communicator& comm, device::Memory shard, device::Memory gathered) const;

  // Exchanges pieces and folds the contributions of the ranks in rank order, one by one, into the
  // accumulator; add == false: the first one of the run overwrites. In the same pass, where norm_terms are
  // wanted: the terms of what is then in the accumulator, before division and clipping; non-finite elements
  // are counted and not in the squares.
  BoundCall BindReduceGradients(comm::Communicator& comm, const ReduceMemory& memory, bool add) const;

  // One pass over the shard, which leaves what is published too. Clip coefficient and whether to move at all
  // are read from the outcome, where the step is from the inputs: no host waits for either.
  BoundCall BindOptimizerStep(const OptimizerMemory& memory, const AdamWConfig& config) const;

 private:
  at::Tensor Shard(const char* what, device::Memory memory) const;
  at::Tensor ComputeShard(const char* what, device::Memory memory) const;
  at::Tensor Gathered(const char* what, device::Memory memory, c10::ScalarType type) const;
  at::Tensor Exactly(const char* what, const char* like, device::Memory memory, int64_t elements,
                     c10::ScalarType type) const;
  void CheckGroup(const comm::Communicator& comm) const;
  void CheckBytes(const char* what, device::Memory memory, int64_t bytes) const;

  std::string name_;
  Layout layout_;
  int num_ranks_;
  int64_t shard_elements_;
  int64_t begin_;  // flat coordinate of the shard's first element
  Range owned_;
  std::vector<Piece> pieces_;
  UnitTypes types_;
  device::Device* device_;
  std::shared_ptr<UnitKernels> kernels_;  // shared with what is bound
};

// Round: `collected`, the sum of several writers in the main type, to a contribution's part in the transport
// type. Both are [n].
BoundCall BindRound(device::Device& device, device::Memory collected, c10::ScalarType main,
                    device::Memory contribution, c10::ScalarType transport);

}  // namespace tandem::fsdp
