// SPDX-License-Identifier: Apache-2.0
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
#include "fsdp/unit_mesh.h"

namespace tandem::comm {
class Communicator;
}
namespace tandem::device {
class Device;
}

namespace tandem::fsdp {

class ShardKernels;
class UnitKernels;
struct UnitNormTerms;

// Made once, when a program is bound; then runs on the same memory in every step, on the current stream.
// Allocates nothing that outlives the call. Throws CommError.
using BoundCall = std::function<void()>;

// Element types of a unit, by role. All three are fp64, or main is fp32 and the others are fp32 or bf16.
// Where compute is not main, weights that are updated are published: a shard of them in the compute type,
// which is what is gathered.
struct UnitTypes {
  c10::ScalarType main;       // weights, moments, accumulator
  c10::ScalarType compute;    // published shard, gathered parameters
  c10::ScalarType transport;  // contribution and staging
  bool frozen = false;        // never updated: weights are of the compute type, and are what is gathered
};

// The memory of one instruction, by role. A shard is [ShardElements], what is held (weights, moments)
// [HeldRange], the accumulator [AccumulatorRange], a piece [PieceElements]; gathered buffers, contributions
// and full gradients are [PaddedElements] (fsdp/unit_mesh.h). Gaps between parameters are carried, never
// read.
struct StateMemory {
  device::Memory weights;
  device::Memory exp_avg;  // begin == nullptr, like exp_avg_sq: the unit is frozen
  device::Memory exp_avg_sq;
  device::Memory published;  // begin == nullptr where weights are not published
};
struct ReduceMemory {
  device::Memory contribution;  // this rank's, of one microbatch
  bool accumulated = false;     // it is the full gradient of all microbatches, in the main type
  device::Memory staging;       // as large, holds garbage before and after; unused without a communicator
  device::Memory gradients;     // the accumulator
  device::Memory norm_terms;    // begin == nullptr: not the run's last reduction, none are written
};
struct ReduceOuterMemory {
  device::Memory gradients;  // the accumulator, which holds the inner group's sum
  device::Memory staging;    // as large; holds garbage before and after
  device::Memory norm_terms;
};
struct OptimizerMemory {
  device::Memory gradients;
  device::Memory outcome;  // of the run that the gradients are from
  device::Memory inputs;   // of this run
  StateMemory state;
  device::Memory update_norms;  // of this run: a ParameterNorms for each parameter of the layout; begin ==
                                // nullptr: not wanted
  device::Memory scratch;
};

// One unit on one rank, placed on a mesh of ranks: what it does to memory that the caller lays out. Owns no
// memory of the job and no communicator. Every function that binds throws std::invalid_argument, naming the
// unit, where a size does not fit, or the communicator has this rank at another place than the mesh.
class UnitShard {
 public:
  // device and kernels are of the same kind and outlive it and what it binds.
  UnitShard(std::string name, Layout layout, const UnitMesh& mesh, UnitTypes types, device::Device& device,
            const ShardKernels& kernels);
  ~UnitShard();
  UnitShard(UnitShard&&) noexcept;

  const std::string& name() const { return name_; }
  const Layout& layout() const { return layout_; }
  c10::ScalarType weights_type() const { return types_.frozen ? types_.compute : types_.main; }
  Range held() const { return held_; }                          // of weights and moments, padding included
  const std::vector<Piece>& pieces() const { return pieces_; }  // of the parameters, in what is held
  // No other rank has it; part of what is held. Padding excluded.
  Range owned() const { return WithoutPadding(layout_, PieceRange(layout_, mesh_)); }
  int64_t published_bytes() const;  // of what is held; 0 where weights are not published

  // Weights as `inits`, one for each parameter of the layout, say; moments zero. Every element depends on
  // seed, parameter name and its global index alone (initialize.h). Blocks where it computes on the host.
  void Initialize(uint64_t seed, const std::vector<ParameterInit>& inits, const StateMemory& state) const;

  // The weights as they are, to `published`; nothing where weights are not published. For the start of a job:
  // later every OptimizerStep does it.
  void Publish(const StateMemory& state) const;

  // All-gather of the inner group's shards: the published ones, where weights are published.
  BoundCall BindUnshard(comm::Communicator& inner, device::Memory shard, device::Memory gathered) const;

  // All-gather of the outer group's pieces: the inner shard.
  BoundCall BindUnshardOuter(comm::Communicator& outer, device::Memory piece, device::Memory shard) const;

  // Adds a contribution to the full gradient; add == false: the first one of the run overwrites.
  BoundCall BindAccumulate(device::Memory contribution, device::Memory full_gradient, bool add) const;

  // Exchanges pieces and folds the contributions of the ranks in rank order, one by one, into the
  // accumulator. inner: null for a rank that is alone on the inner axis, which folds its own. add == false:
  // the first one of the run overwrites. In the same pass, where norm_terms are wanted: the terms of what is
  // then in the accumulator, before division and clipping; non-finite elements are counted and not in the
  // squares. Where every rank has the whole accumulator, each folds its shard of it, which its terms are of,
  // and an all-gather puts them together.
  BoundCall BindReduceGradients(comm::Communicator* inner, const ReduceMemory& memory, bool add) const;

  // The same over the outer group, after the last reduction over the inner one: exchanges pieces of the
  // accumulator and folds them in rank order; its terms are of this rank's piece. An all-gather puts the
  // pieces together, unless nobody needs more than its own.
  BoundCall BindReduceOuter(comm::Communicator& outer, const ReduceOuterMemory& memory) const;

  // One pass over what is held, which leaves what is published too. Clip coefficient and whether to move at
  // all are read from the outcome, where the step is from the inputs: no host waits for either. On a rank
  // whose part does not count (CountsHeld) the update norms are zeros: norms of all ranks can be added.
  BoundCall BindOptimizerStep(const OptimizerMemory& memory, const AdamWConfig& config) const;

 private:
  at::Tensor Elements(const char* what, device::Memory memory, int64_t elements, c10::ScalarType type) const;
  void CheckGroup(const comm::Communicator& comm, int size, int rank) const;
  void CheckBytes(const char* what, device::Memory memory, int64_t bytes) const;
  UnitNormTerms* NormTermsIn(device::Memory memory) const;
  // Element `flat` of an accumulator.
  char* At(device::Memory accumulator, int64_t flat) const;

  std::string name_;
  Layout layout_;
  UnitMesh mesh_;
  Range held_;
  Range accumulator_;
  std::vector<Piece> pieces_;
  UnitTypes types_;
  device::Device* device_;
  const ShardKernels* kernels_;
  // Shared with what is bound.
  std::shared_ptr<UnitKernels> accumulate_;  // one contribution, of the whole unit
  std::shared_ptr<UnitKernels> fold_;        // of the inner group's contributions, on the shard
  std::shared_ptr<UnitKernels> fold_full_;   // of the inner group's full gradients, on the shard
  std::shared_ptr<UnitKernels> fold_outer_;  // of the outer group's, on the piece
  std::shared_ptr<UnitKernels> optimizer_;   // on what is held
};

// Round: `collected`, the sum of several writers in the main type, to a contribution's part in the transport
// type. Both are [n].
BoundCall BindRound(device::Device& device, device::Memory collected, c10::ScalarType main,
                    device::Memory contribution, c10::ScalarType transport);

}  // namespace tandem::fsdp
