// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/grid_sizes.h"

namespace tandem::parallel {

// Where a rank is along an axis.
struct AxisPlace {
  int index = 0;
  int size = 1;
  bool operator==(const AxisPlace&) const = default;
};

// Which part of a step is one rank's. Made once from the grid; sizes are the same on all ranks. Whatever
// depends on how ranks share a step asks it, and a rank's number in the job serves rendezvous, logs and files
// alone:
//
// | what | answer | asked by |
// |---|---|---|
// | microbatches that the ranks work on at the same time | data.size | jobspec (global_batch_size), plan |
// | rounds of a step, of a validation | RoundsOf | plan (programs), executor |
// | which text a rank reads in a round | MicrobatchOf | trainer/rank (loader) |
// | divisor of the mean gradient and of its norm | MicrobatchesOf(rounds) | trainer/binder |
// | contributions of a microbatch | context.size, in the order (data.index, context.index) | fsdp meshes |
// | tokens of a step | MicrobatchesOf(rounds) × those of a microbatch | plan, reports, checkpoints |
// | whose losses add up to a microbatch's | SharingRanks | trainer/reporter |
// | ranks whose routers' counts are added up | counting_ranks() | model (balance_scope: global) |
// | which rank saves a state that several hold | saves_states() | checkpoints |
// | FLOPs of a rank, norms of all gradients | world | plan, reports |
//
// Ranks that differ in tensor, context or stage alone share a data index; replicas and experts do not change
// it.
struct Topology {
  int world = 1;
  int rank = 0;
  // Of the dense grid. data: its dp axis.
  AxisPlace tensor;
  AxisPlace context;
  AxisPlace data;
  AxisPlace stage;
  // Of the expert grid.
  AxisPlace expert;
  AxisPlace expert_data;
  int chunks = 1;  // of the model, on a rank

  // The global number of the microbatch that this rank works on in its round-th round.
  int64_t MicrobatchOf(int64_t round) const { return round * data.size + data.index; }
  int64_t MicrobatchesOf(int64_t rounds) const { return rounds * data.size; }
  // Rounds in which the ranks work through so many microbatches; the last may be one of fewer.
  int64_t RoundsOf(int64_t microbatches) const { return (microbatches + data.size - 1) / data.size; }

  int counting_ranks() const { return data.size * context.size; }
  bool saves_states() const { return tensor.index == 0 && data.index == 0 && context.index == 0; }
};

// InvalidArgument as MakeGrids, or where the grid has no such rank.
absl::StatusOr<Topology> TopologyOf(const GridSizes& sizes, int rank);

// By data index: the ranks that share a microbatch, stage by stage, each stage in context order. What they
// report of it adds up, in this order, to what one rank would: a rank reports zero of what another stage has.
// Errors as MakeGrids.
absl::StatusOr<std::vector<RankList>> SharingRanks(const GridSizes& sizes);

// Microbatches that the ranks work on at the same time; 0 where the sizes mean nothing.
int DataRanks(const GridSizes& sizes);

}  // namespace tandem::parallel
