#include "schedules_v1/meaning.h"

#include <utility>

#include "absl/hash/hash.h"

namespace tandem::schedules_v1 {
namespace operations {
namespace {

// Apart from each other, so that no two operations on the same hashes are the same.
enum Operation : uint64_t {
  kInitialWeights = 1,
  kInitialOptimizerState,
  kBatch,
  kGather,
  kParameters,
  kPass,
  kOutput,
  kAdd,
  kContribution,
  kReduction,
  kNorm,
  kNextWeights,
  kNextOptimizerState,
  kReport,
  kSnapshot,
};

template <typename... Operands>
Hash Of(Operation operation, Operands... operands) {
  return absl::HashOf(static_cast<uint64_t>(operation), operands...);
}

Hash Over(Hash first, absl::Span<const Hash> rest) {
  for (const Hash hash : rest) {
    first = absl::HashOf(first, hash);
  }
  return first;
}

}  // namespace

Hash InitialWeights(int rank, UnitId unit) { return Of(kInitialWeights, rank, unit); }
Hash InitialOptimizerState(int rank, UnitId unit) { return Of(kInitialOptimizerState, rank, unit); }
Hash Batch(int run, int rank, int microbatch) { return Of(kBatch, run, rank, microbatch); }
Hash Gather(UnitId unit, absl::Span<const Hash> weights_of_ranks) {
  return Over(Of(kGather, unit), weights_of_ranks);
}
Hash Parameters(Hash gathered, UnitPart part) { return Of(kParameters, gathered, part.unit, part.part); }
Hash Pass(NodeId node, PassKind pass, absl::Span<const Hash> reads) {
  return Over(Of(kPass, node, static_cast<int>(pass)), reads);
}
Hash Output(Hash pass, int index) { return Of(kOutput, pass, index); }
Hash Add(Hash sum, Hash contribution) { return Of(kAdd, sum, contribution); }
Hash Contribution(UnitId unit, absl::Span<const Hash> parts) { return Over(Of(kContribution, unit), parts); }
Hash Reduction(absl::Span<const Hash> contributions_of_ranks) {
  return Over(Of(kReduction), contributions_of_ranks);
}
Hash Norm(absl::Span<const Hash> shards_of_ranks) { return Over(Of(kNorm), shards_of_ranks); }
Hash NextWeights(Hash weights, Hash optimizer_state, Hash gradient_shard, Hash norm) {
  return Of(kNextWeights, weights, optimizer_state, gradient_shard, norm);
}
Hash NextOptimizerState(Hash weights, Hash optimizer_state, Hash gradient_shard, Hash norm) {
  return Of(kNextOptimizerState, weights, optimizer_state, gradient_shard, norm);
}
Hash Report(absl::Span<const Hash> reads) { return Over(Of(kReport), reads); }
Hash Snapshot(absl::Span<const Hash> state) { return Over(Of(kSnapshot), state); }

}  // namespace operations

namespace {

using operations::PassKind;

// All ranks in step.
class Reference {
 public:
  Reference(const Outline& outline, int num_ranks) : outline_(outline), endings_(num_ranks) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (UnitId unit = 0; unit < NumUnits(); ++unit) {
        endings_[rank].weights.push_back(operations::InitialWeights(rank, unit));
        endings_[rank].optimizer_states.push_back(operations::InitialOptimizerState(rank, unit));
        endings_[rank].gradient_shards.push_back(0);
      }
    }
  }

  void Do(const Task& task) {
    if (task.kind == Task::Kind::kSnapshot) {
      for (Ending& ending : endings_) {
        std::vector<Hash> state = ending.weights;
        state.insert(state.end(), ending.optimizer_states.begin(), ending.optimizer_states.end());
        ending.snapshots.push_back(operations::Snapshot(state));
      }
    } else {
      Gather();
      losses_.assign(endings_.size(), {});
      for (int microbatch = 0; microbatch < task.num_microbatches; ++microbatch) {
        DoMicrobatch(microbatch, task);
      }
      Finish(task.kind == Task::Kind::kTrain);
    }
    ++run_;
  }

  std::vector<Ending> Take() { return std::move(endings_); }

 private:
  struct Microbatch {
    std::vector<Hash> values;
    std::vector<Hash> gradients;                    // of values; 0: none yet
    std::vector<std::vector<Hash>> unit_gradients;  // by part; 0: none yet
  };

  int NumUnits() const { return static_cast<int>(outline_.units.size()); }

  void Gather() {
    gathered_.clear();
    for (UnitId unit = 0; unit < NumUnits(); ++unit) {
      std::vector<Hash> weights;
      for (const Ending& ending : endings_) {
        weights.push_back(ending.weights[unit]);
      }
      gathered_.push_back(operations::Gather(unit, weights));
    }
  }

  void DoMicrobatch(int number, const Task& task) {
    const bool train = task.kind == Task::Kind::kTrain;
    std::vector<Microbatch> of_ranks(endings_.size());
    for (size_t rank = 0; rank < endings_.size(); ++rank) {
      Microbatch& microbatch = of_ranks[rank];
      microbatch.values.assign(outline_.values.size(), 0);
      microbatch.gradients.assign(outline_.values.size(), 0);
      for (const Unit& unit : outline_.units) {
        microbatch.unit_gradients.emplace_back(unit.parts.size(), 0);
      }
      microbatch.values[outline_.batch] = operations::Batch(run_, static_cast<int>(rank), number);
      for (NodeId node = 0; node < static_cast<int>(outline_.nodes.size()); ++node) {
        DoPass(node, PassKind::kForward, microbatch);
      }
      losses_[rank].push_back(microbatch.values[outline_.loss]);
      for (NodeId node = static_cast<int>(outline_.nodes.size()) - 1; train && node >= 0; --node) {
        if (task.split_backward && outline_.nodes[node].splits_backward) {
          DoPass(node, PassKind::kBackwardInput, microbatch);
          DoPass(node, PassKind::kBackwardWeight, microbatch);
        } else {
          DoPass(node, PassKind::kBackward, microbatch);
        }
      }
    }
    for (UnitId unit = 0; train && unit < NumUnits(); ++unit) {
      std::vector<Hash> contributions;
      for (const Microbatch& microbatch : of_ranks) {
        contributions.push_back(operations::Contribution(unit, microbatch.unit_gradients[unit]));
      }
      const Hash reduction = operations::Reduction(contributions);
      for (Ending& ending : endings_) {
        Hash& shard = ending.gradient_shards[unit];
        shard = number == 0 ? reduction : operations::Add(shard, reduction);
      }
    }
  }

  static const Access& AccessOf(const Node& node, PassKind kind) {
    switch (kind) {
      case PassKind::kForward:
        return node.forward;
      case PassKind::kBackward:
        return node.backward;
      case PassKind::kBackwardInput:
        return node.backward_input;
      case PassKind::kBackwardWeight:
        break;
    }
    return node.backward_weight;
  }

  void DoPass(NodeId id, PassKind kind, Microbatch& microbatch) const {
    const Access& access = AccessOf(outline_.nodes[id], kind);
    std::vector<Hash> reads;
    for (const ValueId value : access.reads) {
      reads.push_back(microbatch.values[value]);
    }
    for (const ValueId value : access.gradient_reads) {
      reads.push_back(microbatch.gradients[value]);
    }
    for (const UnitPart& part : access.parameters) {
      reads.push_back(operations::Parameters(gathered_[part.unit], part));
    }
    const Hash pass = operations::Pass(id, kind, reads);
    int output = 0;
    for (const ValueId value : access.writes) {
      microbatch.values[value] = operations::Output(pass, output++);
    }
    const auto accumulate = [&](Hash& sum) {
      const Hash contribution = operations::Output(pass, output++);
      sum = sum == 0 ? contribution : operations::Add(sum, contribution);
    };
    for (const ValueId value : access.gradient_writes) {
      accumulate(microbatch.gradients[value]);
    }
    for (const UnitPart& part : access.parameter_gradients) {
      accumulate(microbatch.unit_gradients[part.unit][part.part]);
    }
  }

  void Finish(bool train) {
    std::vector<Hash> shards;
    for (const Ending& ending : endings_) {
      shards.insert(shards.end(), ending.gradient_shards.begin(), ending.gradient_shards.end());
    }
    const Hash norm = operations::Norm(shards);
    for (size_t rank = 0; rank < endings_.size(); ++rank) {
      Ending& ending = endings_[rank];
      std::vector<Hash> reported = losses_[rank];
      for (UnitId unit = 0; train && unit < NumUnits(); ++unit) {
        const Hash weights = ending.weights[unit];
        const Hash state = ending.optimizer_states[unit];
        const Hash gradient = ending.gradient_shards[unit];
        ending.weights[unit] = operations::NextWeights(weights, state, gradient, norm);
        ending.optimizer_states[unit] = operations::NextOptimizerState(weights, state, gradient, norm);
      }
      if (train) {
        reported.push_back(norm);
        reported.insert(reported.end(), ending.optimizer_states.begin(), ending.optimizer_states.end());
      }
      ending.reports.push_back(operations::Report(reported));
    }
  }

  const Outline& outline_;
  std::vector<Ending> endings_;            // by rank
  std::vector<Hash> gathered_;             // by unit, in the task
  std::vector<std::vector<Hash>> losses_;  // by rank and microbatch, in the task
  int run_ = 0;                            // tasks done
};

}  // namespace

std::vector<Ending> Meaning(const Outline& outline, absl::Span<const Task> tasks, int num_ranks) {
  Reference reference(outline, num_ranks);
  for (const Task& task : tasks) {
    reference.Do(task);
  }
  return reference.Take();
}

}  // namespace tandem::schedules_v1
