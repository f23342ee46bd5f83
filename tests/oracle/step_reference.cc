// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/step_reference.h"

#include <map>
#include <tuple>

namespace tandem::oracle {

using schedules::Access;
using schedules::Buffer;
using schedules::BufferKind;
using schedules::Life;
using schedules::Node;
using schedules::Opcode;
using schedules::Placement;
using schedules::Unit;

namespace {

// Per rank.
using Hashes = std::vector<Hash>;

class StepReference {
 public:
  StepReference(const schedules::Outline& outline, const schedules::BuildOptions& options,
                const schedules::StagePrograms& stage)
      : outline_(outline), options_(options), stage_(stage), ranks_(options) {}

  Observations Run(const std::vector<std::string>& runs) {
    for (run_ = 0; run_ < static_cast<int>(runs.size()); ++run_) {
      Step(runs[run_]);
    }
    ForBuffers([&](const Buffer& buffer) {
      for (int element = 0; element < (buffer.life == Life::kRing ? 2 : 1); ++element) {
        observed_["in the end " + buffer.name + " " + std::to_string(element)] = WholeOf(buffer, element);
      }
    });
    return observed_;
  }

 private:
  using Key = std::tuple<BufferKind, int, int, int>;  // kind, subject, element, part (-1: whole)

  template <typename F>
  Hashes ForRanks(const F& make) const {
    Hashes hashes;
    for (int r = 0; r < ranks_.size(); ++r) {
      hashes.push_back(make(r));
    }
    return hashes;
  }

  template <typename F>
  void ForBuffers(const F& f) {
    for (const Buffer& buffer : stage_.begin.buffers) {
      if (buffer.life != Life::kLocal) {
        f(buffer);
      }
    }
  }

  static bool IsRing(BufferKind kind) {
    return kind != BufferKind::kWeights && kind != BufferKind::kPublished && kind != BufferKind::kGradients &&
           kind != BufferKind::kOptimizerState && kind != BufferKind::kNodeState &&
           kind != BufferKind::kHostWeights && kind != BufferKind::kHostOptimizerState &&
           kind != BufferKind::kHostNodeState;
  }
  int ElementOf(BufferKind kind, bool former = false) const {
    return IsRing(kind) ? (run_ + (former ? 1 : 0)) % 2 : 0;
  }

  const Buffer* Find(const schedules::Program& program, BufferKind kind, int subject) const {
    for (const Buffer& buffer : program.buffers) {
      if (buffer.kind == kind && buffer.subject == subject) {
        return &buffer;
      }
    }
    return nullptr;
  }

  // The only part of a buffer is the whole.
  static Hash PartOf(size_t num_parts, int64_t begin, int64_t end, Hash whole) {
    return num_parts < 2 ? whole : Slice(begin, end - begin, whole);
  }

  // What is read as a whole from a buffer that was written as a whole.
  Hashes Through(const Buffer* buffer, const Hashes& whole) const {
    if (buffer == nullptr || buffer->parts.size() < 2) {
      return whole;
    }
    return ForRanks([&](int r) {
      std::vector<Hash> parts;
      for (const schedules::BufferPart& part : buffer->parts) {
        parts.push_back(Slice(part.begin, part.end - part.begin, whole[r]));
      }
      return Join(parts);
    });
  }

  Hashes WholeOf(const Buffer& buffer, int element) const {
    const auto whole = [&] {
      const auto found = state_.find({buffer.kind, buffer.subject, element, -1});
      return found != state_.end() ? found->second : ForRanks([&](int r) {
        return HashOf(Operation::kInitial,
                      {U(static_cast<int>(buffer.kind)), U(buffer.subject), U(element), U(r)});
      });
    }();
    if (buffer.parts.empty()) {
      return whole;
    }
    return ForRanks([&](int r) {
      std::vector<Hash> parts;
      for (size_t p = 0; p < buffer.parts.size(); ++p) {
        const auto found = state_.find({buffer.kind, buffer.subject, element, static_cast<int>(p)});
        parts.push_back(found != state_.end() ? found->second[r]
                                              : PartOf(buffer.parts.size(), buffer.parts[p].begin,
                                                       buffer.parts[p].end, whole[r]));
      }
      return Join(parts);
    });
  }

  Hashes Get(BufferKind kind, int subject, bool former = false) const {
    return WholeOf(*Find(stage_.begin, kind, subject), ElementOf(kind, former));
  }
  void Set(BufferKind kind, int subject, const Hashes& hashes, int part = -1) {
    state_[{kind, subject, ElementOf(kind), part}] = hashes;
  }

  void Step(const std::string& name) {
    const bool trains = name == "train" || name == "begin" || name == "train_save";
    ForBuffers([&](const Buffer& buffer) {  // the host
      if (buffer.kind == BufferKind::kHostInputs || buffer.kind == BufferKind::kHostBatch) {
        Set(buffer.kind, buffer.subject, ForRanks([&](int r) {
              return HashOf(Operation::kGivenByHost,
                            {U(run_), U(static_cast<int>(buffer.kind)), U(buffer.subject), U(r)});
            }));
        for (size_t p = 0; p < buffer.parts.size(); ++p) {
          state_.erase({buffer.kind, buffer.subject, ElementOf(buffer.kind), static_cast<int>(p)});
        }
      }
    });
    bool inputs = name != "validate";
    for (const Node& node : outline_.nodes) {
      inputs |= node.forward.reads_inputs;
    }
    if (inputs) {
      Set(BufferKind::kInputs, -1, Get(BufferKind::kHostInputs, -1));
    }
    if (name == "train" || name == "update" || name == "train_save") {
      Update();
    }
    if (name == "train_save") {
      Save();
    }
    if (name != "update") {
      Gather();
      const int count = trains ? options_.num_microbatches : options_.num_validation_microbatches;
      for (int m = 0; m < count; ++m) {
        Microbatch(m, trains, m + 1 == count);
      }
    }
    if (trains) {
      Norm();
    }
    ForBuffers([&](const Buffer& buffer) {
      if (buffer.kind == BufferKind::kHostLosses || buffer.kind == BufferKind::kHostUpdateNorms ||
          buffer.kind == BufferKind::kHostOutcome) {
        observed_["the host reads " + buffer.name + " of run " + std::to_string(run_)] =
            WholeOf(buffer, ElementOf(buffer.kind));
      }
    });
  }

  // What a checkpoint holds of the step that was applied.
  void Save() {
    for (int s = 0; s < static_cast<int>(outline_.states.size()); ++s) {
      if (outline_.states[s].counter >= 0) {
        Set(BufferKind::kHostNodeState, s, Get(BufferKind::kNodeState, s));
      }
    }
    for (int u = 0; u < static_cast<int>(outline_.units.size()); ++u) {
      if (!outline_.units[u].frozen) {
        Set(BufferKind::kHostWeights, u, Get(BufferKind::kWeights, u));
        Set(BufferKind::kHostOptimizerState, u, Get(BufferKind::kOptimizerState, u));
      }
    }
  }

  void Update() {
    for (int s = 0; s < static_cast<int>(outline_.states.size()); ++s) {
      const int counter = outline_.states[s].counter;
      if (counter < 0) {
        continue;
      }
      const Hashes counted = Get(BufferKind::kNodeState, counter);
      const Hashes held = Get(BufferKind::kNodeState, s);
      const Hashes outcome = Get(BufferKind::kOutcome, -1, /*former=*/true);
      Set(BufferKind::kNodeState, s, ForRanks([&](int r) {
            return HashOf(Operation::kUpdated, {U(s), held[r], outcome[r]}, counted);
          }));
      Set(BufferKind::kNodeState, counter, ForRanks([](int) { return HashOf(Operation::kZero, {}); }));
    }
    for (int u = 0; u < static_cast<int>(outline_.units.size()); ++u) {
      const Unit& unit = outline_.units[u];
      if (unit.frozen) {
        continue;
      }
      const Hashes reads[] = {Get(BufferKind::kGradients, u), Get(BufferKind::kOutcome, -1, /*former=*/true),
                              Get(BufferKind::kInputs, -1), Get(BufferKind::kWeights, u),
                              Get(BufferKind::kOptimizerState, u)};
      const auto output = [&](BufferKind kind) {
        return ForRanks([&](int r) {
          std::vector<Hash> of_rank;
          for (const Hashes& hashes : reads) {
            of_rank.push_back(hashes[r]);
          }
          return HashOf(Operation::kOutput,
                        {HashOf(Operation::kOptimizer, {U(u)}, of_rank), U(static_cast<int>(kind))});
        });
      };
      Set(BufferKind::kWeights, u, output(BufferKind::kWeights));
      Set(BufferKind::kOptimizerState, u, output(BufferKind::kOptimizerState));
      if (Publishes(unit)) {
        Set(BufferKind::kPublished, u, output(BufferKind::kPublished));
      }
      if (options_.parameter_norms) {
        Set(BufferKind::kUpdateNorms, u, output(BufferKind::kUpdateNorms));
        Set(BufferKind::kHostUpdateNorms, u, output(BufferKind::kUpdateNorms));
      }
    }
  }

  const schedules::Strategy& StrategyOf(const Unit& unit) const {
    return unit.group == schedules::UnitGroup::kExpert ? options_.expert_strategy : options_.strategy;
  }

  // A unit that computes in another type than the main one, be it in one class, has a copy to be gathered.
  static bool Publishes(const Unit& unit) {
    return !unit.frozen && std::any_of(unit.classes.begin(), unit.classes.end(), [](const auto& each) {
      return each.precision.compute != each.precision.main;
    });
  }

  // The ranks of an axis gather what they share, unless each is alone.
  bool Gathers(int u, int axis, const schedules::AxisPlacement& placement) const {
    return placement.optimizer == Placement::kShard &&
           ranks_.Of(outline_.units[u].group, axis, 0).ranks.size() > 1;
  }

  Hashes Gathered(int u, int axis, const Hashes& shards) const {
    return ForRanks([&](int r) {
      std::vector<Hash> all;
      for (const int other : ranks_.Of(outline_.units[u].group, axis, r).ranks) {
        all.push_back(shards[other]);
      }
      return HashOf(Operation::kGather, {U(u)}, all);
    });
  }

  void Gather() {
    parameters_.clear();
    for (int u = 0; u < static_cast<int>(outline_.units.size()); ++u) {
      const Unit& unit = outline_.units[u];
      const BufferKind kind = Publishes(unit) ? BufferKind::kPublished : BufferKind::kWeights;
      Hashes all = Get(kind, u);
      const bool gathers_outer = Gathers(u, 1, StrategyOf(unit).outer);
      const bool gathers_inner = Gathers(u, 0, StrategyOf(unit).inner);
      if (gathers_outer) {
        all = Gathered(u, 1, all);
      }
      if (gathers_inner) {
        all = Gathered(u, 0, all);
      }
      if (!gathers_outer && !gathers_inner) {
        // Nodes read parts of the persistent buffer itself, as it was last written.
        const auto found = state_.find({kind, u, 0, -1});
        all = found != state_.end() ? found->second : ForRanks([&](int r) {
          return HashOf(Operation::kInitial, {U(static_cast<int>(kind)), U(u), 0, U(r)});
        });
      }
      for (int p = 0; p < static_cast<int>(unit.parts.size()); ++p) {
        // A gathered class is its shards of all ranks, and classes follow each other.
        int64_t before = 0;
        for (int c = 0; c < unit.parts[p].of_class; ++c) {
          before += unit.classes[c].precision.compute * options_.units[u].classes[c].shard_elements *
                    std::ssize(ranks_.Of(unit.group, 0, 0).ranks);
        }
        const int element = unit.classes[unit.parts[p].of_class].precision.compute;
        const int64_t begin = before + unit.parts[p].begin * element;
        const int64_t end = before + unit.parts[p].end * element;
        parameters_[{u, p}] = ForRanks([&](int r) { return PartOf(unit.parts.size(), begin, end, all[r]); });
      }
    }
  }

  // What one microbatch has computed so far.
  struct Values {
    std::map<int, Hashes> values;
    std::map<int, Hashes> gradients;
    std::map<std::pair<int, int>, Hashes> contributions;
    std::map<std::pair<int, int>, int> writers;  // one that adds to it more than once counts as two
  };

  void Pass(int n, Opcode opcode, const Access& access, int m, bool trains, Values& v) {
    std::vector<Hashes> reads;
    for (const int value : access.reads) {
      reads.push_back(v.values[value]);
    }
    for (const int value : access.gradient_reads) {
      reads.push_back(v.gradients[value]);
    }
    for (const auto& part : access.parameters) {
      reads.push_back(parameters_[{part.unit, part.part}]);
    }
    for (const int state : access.state_reads) {
      reads.push_back(Get(BufferKind::kNodeState, state));
    }
    for (const int state : access.state_carries) {
      reads.push_back(trains && m > 0 ? Get(BufferKind::kNodeState, state) : Hashes());
    }
    if (access.reads_inputs) {
      reads.push_back(Get(BufferKind::kInputs, -1));
    }
    const bool exchanges = !outline_.nodes[n].group.empty();
    uint64_t place = 0;
    const auto output = [&] {
      const uint64_t k = place++;
      return ForRanks([&](int r) {
        std::vector<Hash> seen;
        const Group group = exchanges ? ranks_.OfNodes(outline_.nodes[n].group, r) : Group{{r}, 0};
        for (const int other : group.ranks) {
          for (Hashes& thing : reads) {
            thing.resize(ranks_.size(), 0);
            seen.push_back(thing[other]);
          }
        }
        const Hash call =
            HashOf(Operation::kPass,
                   {U(n), U(static_cast<int>(opcode)), access.reads_inputs ? U(m) : ~uint64_t{0}}, seen);
        return HashOf(Operation::kOutput, {call, k, U(group.index)});
      });
    };
    const auto add_to = [&](Hashes& sum, const Hashes& made) {
      sum = sum.empty() ? made : ForRanks([&](int r) { return HashOf(Operation::kAdd, {sum[r], made[r]}); });
    };
    for (const int value : access.writes) {
      v.values[value] = output();
    }
    for (const int value : access.gradient_writes) {
      add_to(v.gradients[value], output());
    }
    for (const auto& part : access.parameter_gradients) {
      add_to(v.contributions[{part.unit, part.part}], output());
      v.writers[{part.unit, part.part}] += access.sums_parameter_gradients ? 2 : 1;
    }
    for (const int state : access.state_adds) {
      Hashes sum = Get(BufferKind::kNodeState, state);
      add_to(sum, output());
      if (trains) {
        Set(BufferKind::kNodeState, state, sum);
      }
    }
    for (const int state : access.state_carries) {
      const Hashes made = output();
      if (trains) {
        Set(BufferKind::kNodeState, state, made);
      }
    }
  }

  void Microbatch(int m, bool trains, bool last) {
    Values v;
    if (outline_.batch >= 0) {
      const Buffer& batch = *Find(stage_.begin, BufferKind::kHostBatch, outline_.batch);
      const Hashes whole =
          state_[{BufferKind::kHostBatch, outline_.batch, ElementOf(BufferKind::kHostBatch), -1}];
      v.values[outline_.batch] = ForRanks([&](int r) {
        return PartOf(batch.parts.size(), batch.parts[m].begin, batch.parts[m].end, whole[r]);
      });
      Set(BufferKind::kBatch, outline_.batch, v.values[outline_.batch], m);
    }
    for (int n = 0; n < static_cast<int>(outline_.nodes.size()); ++n) {
      Pass(n, Opcode::kForward, outline_.nodes[n].forward, m, trains, v);
    }
    for (const int loss : outline_.losses) {
      Set(BufferKind::kLosses, loss, v.values[loss], m);
      Set(BufferKind::kHostLosses, loss, v.values[loss], m);
    }
    if (!trains) {
      return;
    }
    for (int n = static_cast<int>(outline_.nodes.size()) - 1; n >= 0; --n) {
      const Node& node = outline_.nodes[n];
      Pass(n, Opcode::kBackwardInput, node.backward_input, m, trains, v);
      if (!node.backward_weight.parameter_gradients.empty()) {
        Pass(n, Opcode::kBackwardWeight, node.backward_weight, m, trains, v);
      }
    }
    for (int u = 0; u < static_cast<int>(outline_.units.size()); ++u) {
      if (!outline_.units[u].frozen) {
        Reduce(u, m, last, v);
      }
    }
  }

  void Reduce(int u, int m, bool last, Values& v) {
    const Unit& unit = outline_.units[u];
    const Hashes contribution = ForRanks([&](int r) {
      std::vector<Hash> parts;
      for (int p = 0; p < static_cast<int>(unit.parts.size()); ++p) {
        const int writers = v.writers[{u, p}];
        const Hash written = writers == 0 ? HashOf(Operation::kZero, {}) : v.contributions[{u, p}][r];
        const schedules::UnitPrecision& precision = unit.classes[unit.parts[p].of_class].precision;
        parts.push_back(writers > 1 && precision.transport != precision.main
                            ? HashOf(Operation::kRound, {written})
                            : written);
      }
      return Join(parts);
    });
    const auto fold = [&](int axis, const Hashes* sum, const Hashes& added) {
      return ForRanks([&](int r) {
        const Group group = ranks_.Of(unit.group, axis, r);
        std::vector<Hash> all;
        for (const int other : group.ranks) {
          all.push_back(added[other]);
        }
        return HashOf(Operation::kFold, {U(u), sum != nullptr ? (*sum)[r] : 0, U(group.index)}, all);
      });
    };
    if (StrategyOf(unit).inner.gradients == Placement::kShard) {
      const Hashes sum = Get(BufferKind::kGradients, u);
      Set(BufferKind::kGradients, u, fold(0, m == 0 ? nullptr : &sum, contribution));
    } else {
      Hashes& full = full_[u];
      const Hashes old = m == 0 ? Hashes() : Through(Find(stage_.begin, BufferKind::kFullGradient, u), full);
      full = ForRanks([&](int r) {
        return m == 0 ? HashOf(Operation::kAccumulate, {contribution[r]})
                      : HashOf(Operation::kAccumulate, {old[r], contribution[r]});
      });
      if (last) {
        Set(BufferKind::kGradients, u,
            fold(0, nullptr, Through(Find(stage_.begin, BufferKind::kFullGradient, u), full)));
      }
    }
    if (last && StrategyOf(unit).outer.gradients == Placement::kPartial) {
      Set(BufferKind::kGradients, u, fold(1, nullptr, Get(BufferKind::kGradients, u)));
    }
    if (last) {
      const Hashes sum = state_[{BufferKind::kGradients, u, 0, -1}];
      Set(BufferKind::kNormTerms, u, ForRanks([&](int r) {
            return HashOf(Operation::kNormTerms, {U(u), sum[r]});
          }));
    }
  }

  void Norm() {
    std::vector<Hash> reads;
    for (int u = 0; u < static_cast<int>(outline_.units.size()); ++u) {
      if (!outline_.units[u].frozen) {
        const Hashes terms = Get(BufferKind::kNormTerms, u);
        reads.insert(reads.end(), terms.begin(), terms.end());
      }
    }
    const Hashes inputs = Get(BufferKind::kInputs, -1);
    reads.insert(reads.end(), inputs.begin(), inputs.end());
    const Hashes norm = ForRanks([&](int) { return HashOf(Operation::kNorm, {0}, reads); });
    Set(BufferKind::kOutcome, -1, norm);
    Set(BufferKind::kHostOutcome, -1, norm);
  }

  const schedules::Outline& outline_;
  const schedules::BuildOptions& options_;
  const schedules::StagePrograms& stage_;
  const Ranks ranks_;
  int run_ = 0;
  std::map<Key, Hashes> state_;  // what differs from the beginning
  std::map<std::pair<int, int>, Hashes> parameters_;
  std::map<int, Hashes> full_;
  Observations observed_;
};

}  // namespace

Observations ReferenceOf(const schedules::Outline& outline, const schedules::BuildOptions& options,
                         const schedules::StagePrograms& stage, const std::vector<std::string>& runs) {
  return StepReference(outline, options, stage).Run(runs);
}

}  // namespace tandem::oracle
