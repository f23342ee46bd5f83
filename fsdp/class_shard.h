// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/element_kind.h"
#include "device/memory.h"
#include "fsdp/buffer_bytes.h"
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

// A call that is bound to its memory once, before the first step, and then runs in every step on the current
// stream. It allocates nothing that outlives the call. Throws CommError.
using BoundCall = std::function<void()>;

// Element types of a class, by role. All three are fp64, or main is fp32 and the others are fp32 or bf16.
// If compute is not main, trained weights are published: each step writes a copy of the shard in the compute
// type, and that copy is gathered.
struct ClassTypes {
  device::ElementKind main;       // weights, moments, accumulator
  device::ElementKind compute;    // published shard, gathered parameters
  device::ElementKind transport;  // contribution and staging
  bool frozen = false;            // never updated: weights have the compute type and are gathered directly
  // Publishes trained weights even if compute is main. UnitShard sets it if another class of the unit
  // publishes, so that the unit's gather reads one contiguous buffer.
  bool publishes = false;
};

// The memory of one instruction, by role, for one class or for a whole unit (unit_shard.h). Sizes in elements
// (fsdp/unit_mesh.h): a shard has ShardElements; weights and moments have HeldRange; the accumulator has
// AccumulatorRange; a piece has PieceElements; gathered buffers, contributions and full gradients have
// PaddedElements. Gaps between parameters are communicated, but nothing is computed from them.
struct StateMemory {
  device::Memory weights;
  device::Memory exp_avg;  // begin == nullptr if the unit is frozen, as for exp_avg_sq
  device::Memory exp_avg_sq;
  device::Memory published;  // begin == nullptr if weights are not published
};
struct ReduceMemory {
  device::Memory contribution;  // this rank's, for one microbatch
  bool accumulated = false;     // `contribution` is the full gradient of all microbatches, in the main type
  // Scratch as large as `contribution`; unused without a communicator.
  device::Memory staging;
  device::Memory gradients;  // the accumulator
  // Written by the run's last reduction. In others begin == nullptr.
  device::Memory norm_terms;
};
struct ReduceOuterMemory {
  device::Memory gradients;  // the accumulator, which holds the inner group's sum
  device::Memory staging;    // scratch as large as `gradients`
  device::Memory norm_terms;
};
struct OptimizerMemory {
  device::Memory gradients;
  device::Memory outcome;  // NormOutcome of the run that computed the gradients
  device::Memory inputs;   // RunInputs of this run
  StateMemory state;
  // Output: a ParameterNorms for each parameter of the layout. Not written if begin == nullptr.
  device::Memory update_norms;
  device::Memory scratch;
};

// The sizes of a class's memory on one rank, in bytes by role.
struct ClassBytes : UnitBufferBytes {
  int64_t weights = 0;
  int64_t moment = 0;
  int64_t published = 0;  // 0 if weights are not published
  int64_t piece = 0;      // what the outer group gathers to an inner shard
  int64_t shard = 0;      // what the inner group gathers
  int64_t gathered = 0;
  int64_t contribution = 0;
  int64_t full_gradient = 0;
  int64_t accumulator = 0;
};

// The operations on one class of a unit (the parameters with the same element types), on one rank of a mesh,
// in memory that the caller provides. Owns neither that memory nor a communicator. Every Bind function throws
// std::invalid_argument with the unit's name if a size does not fit, or if the communicator's rank or size
// differs from the mesh's.
class ClassShard {
 public:
  // `layout` comes from MakeLayout. `device` and `kernels` are of the same kind, and must outlive this object
  // and everything that it binds.
  ClassShard(std::string name, Layout layout, const UnitMesh& mesh, ClassTypes types, device::Device& device,
             const ShardKernels& kernels);
  ~ClassShard();
  ClassShard(ClassShard&&) noexcept;

  const Layout& layout() const { return layout_; }
  const ClassTypes& types() const { return types_; }
  device::ElementKind weights_type() const { return types_.frozen ? types_.compute : types_.main; }
  Range held() const { return held_; }  // the range of weights and moments, padding included
  const std::vector<Piece>& pieces() const { return pieces_; }  // the pieces of parameters in held()
  // The part of held() that no other rank has, without padding.
  Range owned() const { return WithoutPadding(layout_, PieceRange(layout_, mesh_)); }
  ClassBytes bytes() const;

  // Initializes weights by `inits` (one for each parameter of the layout) and sets moments to zero. Every
  // element depends only on seed, parameter name and global index (initialize.h). Blocks if the values are
  // computed on the host.
  void Initialize(uint64_t seed, const std::vector<ParameterInit>& inits, const StateMemory& state) const;

  // Publishes the current weights; does nothing if weights are not published. Used at the start of a job;
  // later every OptimizerStep publishes.
  void Publish(const StateMemory& state) const;

  // Gathers the inner group's shards, or their published copies if weights are published.
  BoundCall BindUnshard(comm::Communicator& inner, device::Memory shard, device::Memory gathered) const;

  // Gathers the outer group's pieces to the inner shard.
  BoundCall BindUnshardOuter(comm::Communicator& outer, device::Memory piece, device::Memory shard) const;

  // Adds a contribution to the full gradient, or overwrites it if add == false, as for the first contribution
  // of a run.
  BoundCall BindAccumulate(device::Memory contribution, device::Memory full_gradient, bool add) const;

  // Sends each rank its shard of this rank's contribution (all-to-all), and folds: adds what all ranks sent
  // for this rank's shard to the accumulator, one by one in rank order.
  //
  // `inner` is null for a rank that is alone on the inner axis; such a rank folds only its own contribution.
  // If add == false, as for the first contribution of a run, the accumulator is overwritten. If norm_terms
  // are given, the same loop computes the norm terms of the new accumulator, before division and clipping;
  // non-finite elements are counted and left out of the squares. If every rank keeps the whole accumulator,
  // each folds its shard and computes the terms of that, and an all-gather combines the shards.
  BoundCall BindReduceGradients(comm::Communicator* inner, const ReduceMemory& memory, bool add) const;

  // Reduces over the outer group, after the last reduction over the inner group: exchanges pieces of the
  // accumulator and folds them in rank order. The norm terms are those of this rank's piece. Then an
  // all-gather combines the pieces, unless every rank needs only its own piece.
  BoundCall BindReduceOuter(comm::Communicator& outer, const ReduceOuterMemory& memory) const;

  // Updates and publishes the held range in one pass. Reads the clip coefficient, and whether to update at
  // all, from the outcome, and the step from the inputs, so that the host waits for neither. On a rank for
  // which CountsHeld is false the update norms are zeros, so that the norms of all ranks can be added.
  BoundCall BindOptimizerStep(const OptimizerMemory& memory, const AdamWConfig& config) const;

 private:
  // Returns `memory`. Throws std::invalid_argument with `what` unless it has exactly `bytes` bytes.
  device::Memory Sized(const char* what, device::Memory memory, int64_t bytes) const;
  void CheckGroup(const comm::Communicator& comm, int size, int rank) const;
  void CheckBytes(const char* what, device::Memory memory, int64_t bytes) const;
  UnitNormTerms* NormTermsIn(device::Memory memory) const;
  // The address of element `flat` of an accumulator.
  char* At(device::Memory accumulator, int64_t flat) const;

  std::string name_;  // of the unit
  Layout layout_;
  UnitMesh mesh_;
  Range held_;
  Range accumulator_;
  std::vector<Piece> pieces_;
  ClassTypes types_;
  device::Device* device_;
  const ShardKernels* kernels_;
  // The kernels are shared with bound calls, which may outlive this object.
  std::shared_ptr<UnitKernels> accumulate_;  // adds one contribution, for the whole class
  std::shared_ptr<UnitKernels> fold_;        // folds the inner group's contributions to the shard
  std::shared_ptr<UnitKernels> fold_full_;   // folds the inner group's full gradients to the shard
  std::shared_ptr<UnitKernels> fold_outer_;  // folds the outer group's accumulators to the piece
  std::shared_ptr<UnitKernels> optimizer_;   // updates the held range
};

// Copies all elements of `from` to `to`, which has as many. The types are the same, or float32 is rounded to
// bfloat16. Used if several nodes write a gradient: their sum in the main type becomes a contribution in the
// transport type.
BoundCall BindCopy(device::Memory from, device::ElementKind from_type, device::Memory to,
                   device::ElementKind to_type, device::Device& device, const ShardKernels& kernels);

}  // namespace tandem::fsdp
