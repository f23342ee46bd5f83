// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/program/outline.h"
#include "schedules/program/sharding_strategy.h"

namespace tandem::schedules {

// The data parallel mesh that the units of one UnitGroup are placed on.
struct MeshAxes {
  int inner = 1;                          // ranks that share a unit's shards
  int outer = 1;                          // number of groups of `inner` ranks (replicas of HSDP)
  std::string inner_group = "dp_cp";      // the group that reduces
  std::string gather_group = "dp_cp_ag";  // the group that gathers: a clone of inner_group
  std::string outer_group = "inter_dist_opt";
};

// The sizes of one unit. The caller computes them from the unit's layouts (fsdp/layout.h), on which this
// folder does not depend.
struct ClassSizes {
  int64_t shard_elements = 0;        // size of one rank's inner shard, padding included
  int64_t outer_shard_elements = 0;  // size of one rank's shard if the optimizer is sharded over both axes
};
struct UnitSizes {
  std::vector<ClassSizes> classes;  // in the order of Unit::classes
  int64_t norm_terms_bytes = 0;     // this and all below are for all classes together
  int64_t update_norms_bytes = 0;
  int64_t optimizer_scratch_bytes = 0;
};

// Sizes of one element of the rings kInputs and kOutcome, whose content the trainer defines
// (fsdp/buffer_bytes.h).
struct RingSizes {
  int64_t inputs_bytes = 0;
  int64_t outcome_bytes = 0;
};

struct BuildOptions {
  int num_microbatches = 1;             // of this rank in a run of train or begin
  int num_validation_microbatches = 0;  // 0: there is no validate program
  Strategy strategy;                    // the strategy of the dense units
  Strategy expert_strategy;
  MeshAxes dense;
  MeshAxes expert;
  std::vector<UnitSizes> units;  // by unit of the outline
  RingSizes rings;
  std::string norm_group = "intra_dist_opt";  // the group of GradientNorm: all ranks of all stages
  std::string counts_group = "dp_cp";  // the group of UpdateStates, which adds up counters over its ranks
  bool parameter_norms = true;         // optimizer steps write update norms, which are copied to the host
  bool saves = false;                  // there is a program train_save
  int prefetch = 1;                    // how many spans ahead of their use gathers are issued (passes.h)
  int hold = 0;                        // how many other layers may be used within a span (HoldOf)
  bool separate_weights = false;       // experts' weight halves run on the stream "weights", beside "compute"
  // By value: whether it is recomputed for its backward readers instead of kept. Empty: all are kept.
  std::vector<bool> recompute;
  // By unit: whether one gather serves all passes of a microbatch, forward and backward. Empty: for no unit.
  // Needs sharded parameters.
  std::vector<bool> keep_gathered;
  // By node: whether its passes in training are replayed in segments (passes/segments.h). Empty: for no node.
  std::vector<bool> replayed;
  int64_t budget_bytes = 0;  // memory of the locals; 0: the default budget (passes.h)
};

// The placement of the unit, and the mesh that it is placed on.
inline const Strategy& PlacementOf(const BuildOptions& options, const Unit& unit) {
  return OfGroup(unit.group, options.strategy, options.expert_strategy);
}
inline const MeshAxes& AxesOf(const BuildOptions& options, const Unit& unit) {
  return OfGroup(unit.group, options.dense, options.expert);
}

// Whether other ranks are on the inner axis. If not, the rank has the only contributions and its shard is the
// whole unit, so reductions exchange nothing and nothing is gathered over this axis.
inline bool HasInnerPeers(const BuildOptions& options, const Unit& unit) {
  return AxesOf(options, unit).inner > 1;
}

// Whether what the optimizer updates must be gathered over the axis before nodes can read it.
inline bool GathersInner(const BuildOptions& options, const Unit& unit) {
  return PlacementOf(options, unit).inner.optimizer == Placement::kShard && HasInnerPeers(options, unit);
}
inline bool GathersOuter(const BuildOptions& options, const Unit& unit) {
  return PlacementOf(options, unit).outer.optimizer == Placement::kShard && AxesOf(options, unit).outer > 1;
}

}  // namespace tandem::schedules
