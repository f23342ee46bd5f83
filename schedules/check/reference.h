// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "schedules/check/node_pass.h"
#include "schedules/check/symbols.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// The reference step: what a run must compute. It follows from the outline, the placements of the units'
// shards, and the order of addition, which is
//
//   * for the gradient of a value: the order of the passes, nodes forward and then backward
//   * for a part of a contribution that several passes write: the same order; the sum is rounded once
//   * for the gradient of a unit, if the inner axis shards it: microbatch by microbatch, each folded
//     (added one by one) in the order of the ranks. If the inner axis leaves partial sums: all microbatches
//     of a rank, then these sums once, in the order of the ranks. If the outer axis leaves partial sums,
//     these are added last, in the order of the outer ranks
//
// There are no stages, streams or addresses here. The reference runs one microbatch after the other, and in
// each one node after the other, on what buffers hold when the run starts. `train` is Update() and then
// Step(): it means what `update` and then `begin` mean. `train_save` is the same with Save() between the two.
class Reference {
 public:
  // `outline` is the undivided one.
  Reference(const Outline& outline, const BuildOptions& options, Symbols& symbols);

  // Applies the optimizer steps to the gradients and the outcome that the former run left, and updates states
  // from their counters.
  void Update();
  // Copies to the host what checkpoints hold of the state after Update.
  void Save();
  // Runs all passes and reductions of a step, and the norm.
  void Step();
  void Validate();

  // The final content of one part of a persistent buffer, or of this run's element of a ring. If `part` is
  // -1, the content of the whole buffer.
  Symbol Final(BufferKind kind, int subject, int part, int num_parts) const;

  // The microbatch of a kCall symbol; -1 if the reference does not run that pass.
  int MicrobatchOf(Symbol call) const;

 private:
  class Microbatch;

  Symbol Get(BufferKind kind, int subject) const { return Final(kind, subject, -1, 0); }
  // A single part is the same as the whole buffer.
  Symbol PartOf(int part, size_t num_parts, Symbol whole) const {
    return num_parts < 2 ? whole : symbols_.Part(part, whole);
  }
  void Set(BufferKind kind, int subject, Symbol symbol, int part = -1);
  void Gather();
  void Forward(Microbatch& microbatch);
  void Backward(Microbatch& microbatch);
  void Reduce(int microbatch, bool last, Microbatch& passes);

  const Outline& outline_;
  const BuildOptions& options_;
  Symbols& symbols_;
  // By kind, subject and part; only what differs from the run's start.
  absl::flat_hash_map<std::tuple<BufferKind, int, int>, Symbol> state_;
  std::vector<std::vector<Symbol>> parameters_;  // unit x part
  std::vector<std::vector<int>> num_writers_;    // unit x part: the number of passes that write its gradient
  // Unit x part: its gradient is a sum of several passes, or of several additions within one.
  std::vector<std::vector<bool>> is_sum_;
  std::vector<Symbol> full_;                       // by unit: the sum of one rank's contributions
  absl::flat_hash_map<Symbol, int> microbatches_;  // by symbol of the call
};

}  // namespace tandem::schedules
