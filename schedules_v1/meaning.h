#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "schedules_v1/outline.h"

namespace tandem::schedules_v1 {

// What programs compute, on hashes instead of tensors. A hash covers who wrote something and the hashes of
// all that was read to write it, so two equal hashes are the same arithmetic in the same order: the same
// bits. Hashes hold within one process only.

using Hash = uint64_t;

// What a rank leaves behind.
struct Ending {
  std::vector<Hash> weights;           // per unit: the shard
  std::vector<Hash> optimizer_states;  // per unit
  std::vector<Hash> gradient_shards;   // per unit
  std::vector<Hash> reports;           // of every Report, in order: losses, norm, norms of the parameters
  std::vector<Hash> snapshots;         // of every Snapshot, in order
  bool operator==(const Ending&) const = default;
};

// The operations, as functions of hashes. Whoever uses them, the reference below or the interpreter
// (interpreter.h), gets equal results from equal arithmetic.
namespace operations {

enum class PassKind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

Hash InitialWeights(int rank, UnitId unit);
Hash InitialOptimizerState(int rank, UnitId unit);
// The data of one microbatch depends on how many programs ran before, the rank and the number.
Hash Batch(int run, int rank, int microbatch);
Hash Gather(UnitId unit, absl::Span<const Hash> weights_of_ranks);
Hash Parameters(Hash gathered, UnitPart part);
// What a node's pass makes of all that it reads, in the order of its Access; Output is the index-th thing
// that it writes.
Hash Pass(NodeId node, PassKind pass, absl::Span<const Hash> reads);
Hash Output(Hash pass, int index);
Hash Add(Hash sum, Hash contribution);
// The parts of one unit's gradient, of one rank and microbatch.
Hash Contribution(UnitId unit, absl::Span<const Hash> parts);
Hash Reduction(absl::Span<const Hash> contributions_of_ranks);
Hash Norm(absl::Span<const Hash> shards_of_ranks);  // all units of rank 0, then of rank 1, ...
Hash NextWeights(Hash weights, Hash optimizer_state, Hash gradient_shard, Hash norm);
Hash NextOptimizerState(Hash weights, Hash optimizer_state, Hash gradient_shard, Hash norm);
Hash Report(absl::Span<const Hash> reads);  // losses by microbatch; then norm and optimizer states, of a step
Hash Snapshot(absl::Span<const Hash> state);  // weights, then optimizer states

}  // namespace operations

// One program of a sequence, as the mathematics sees it.
struct Task {
  enum class Kind : uint8_t { kTrain, kValidate, kSnapshot };
  Kind kind = Kind::kTrain;
  int num_microbatches = 0;
  bool split_backward = false;  // nodes that can split their backward run its halves
};

// The reference: the tasks one after the other on num_ranks ranks, every microbatch after the other, every
// node after the other, with no streams, slots or lifetimes. Microbatch by microbatch each unit's gradient is
// folded in node order of the backward (the outline's reversed), and then over ranks into the shard.
std::vector<Ending> Meaning(const Outline& outline, absl::Span<const Task> tasks, int num_ranks);

}  // namespace tandem::schedules_v1
