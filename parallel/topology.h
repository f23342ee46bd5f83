// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/grid_sizes.h"

namespace tandem::parallel {

// The position of a rank along an axis.
struct AxisPlace {
  int index = 0;
  int size = 1;
  bool operator==(const AxisPlace&) const = default;
};

// A rank's share of a step, computed once from the grid. Sizes are the same on all ranks. All code that
// depends on how ranks share a step uses this; the number of a rank in the job serves only rendezvous, logs
// and files:
//
// | what | answer | used by |
// |---|---|---|
// | microbatches that the ranks work on at the same time | data.size | jobspec (global_batch_size), plan |
// | rounds of a step, of a validation | RoundsOf | plan (programs), executor |
// | microbatch that a rank reads in a round | MicrobatchOf | trainer/rank (loader) |
// | divisor of the mean gradient and of its norm | MicrobatchesOf(rounds) | trainer/binder |
// | contributions of a microbatch | context.size, in the order (data.index, context.index) | fsdp meshes |
// | tokens of a step | MicrobatchesOf(rounds) × tokens of a microbatch | plan, reports, checkpoints |
// | ranks whose losses add up to a microbatch's | SharingRanks | trainer/reporter |
// | ranks whose routers' counts are added up | counting_ranks() | model (balance_scope: global) |
// | which rank saves a state that several hold | saves_states() | checkpoints |
// | FLOPs of a rank, norms of all gradients | world | plan, reports |
//
// Ranks that differ only in their tensor, context or stage index have the same data index. It does not depend
// on replicas and expert parallelism.
struct Topology {
  int world = 1;
  int rank = 0;
  // Positions on the dense grid; `data` is on its dp axis.
  AxisPlace tensor;
  AxisPlace context;
  AxisPlace data;
  AxisPlace stage;
  // Positions on the expert grid.
  AxisPlace expert;
  AxisPlace expert_data;
  int chunks = 1;  // pieces of the model on one rank

  // The global number of the microbatch that this rank works on in round `round`.
  int64_t MicrobatchOf(int64_t round) const { return round * data.size + data.index; }
  int64_t MicrobatchesOf(int64_t rounds) const { return rounds * data.size; }
  // How many rounds the ranks need for that many microbatches. In the last round some ranks may have none.
  int64_t RoundsOf(int64_t microbatches) const { return (microbatches + data.size - 1) / data.size; }

  int counting_ranks() const { return data.size * context.size; }
  bool saves_states() const { return tensor.index == 0 && data.index == 0 && context.index == 0; }
};

// Returns InvalidArgument as MakeGrids does, and if the grid has no such rank.
absl::StatusOr<Topology> TopologyOf(const GridSizes& sizes, int rank);

// By data index, the ranks that share a microbatch, ordered by stage and then by context index. The losses
// that they report add up, in this order, to what a single rank would report; a rank reports zero for losses
// of other stages. Returns errors as MakeGrids does.
absl::StatusOr<std::vector<RankList>> SharingRanks(const GridSizes& sizes);

// How many microbatches the ranks work on at the same time; 0 if the sizes are invalid.
int DataRanks(const GridSizes& sizes);

}  // namespace tandem::parallel
