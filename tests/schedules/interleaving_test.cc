#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <random>
#include <set>

#include "schedules/effects.h"
#include "schedules/text.h"
#include "tests/schedules/test_outline.h"

// The waits proved a second way, without the effects table: programs run on streams that go ahead in any
// order that stream order and waits allow, over memory that remembers what was written to it.

namespace tandem::schedules {
namespace {

using Contribution = std::pair<NodeId, int>;  // node, microbatch

class Machine {
 public:
  Machine(const Outline& outline, const Program& program) : outline_(outline), program_(program) {}

  // Any ready instruction next, until all are done.
  void Run(std::mt19937& random) {
    std::map<StreamKind, std::vector<int>> queues;
    for (int i = 0; i < static_cast<int>(program_.instructions.size()); ++i) {
      queues[program_.instructions[i].stream].push_back(i);
    }
    std::map<StreamKind, size_t> next;
    std::vector<bool> done(program_.instructions.size(), false);
    while (true) {
      std::vector<StreamKind> ready;
      for (const auto& [stream, queue] : queues) {
        if (next[stream] < queue.size()) {
          const std::vector<int>& waits = program_.instructions[queue[next[stream]]].waits;
          if (std::all_of(waits.begin(), waits.end(), [&](int wait) { return done[wait]; })) {
            ready.push_back(stream);
          }
        }
      }
      if (ready.empty()) {
        break;
      }
      const StreamKind stream = ready[random() % ready.size()];
      const int i = queues[stream][next[stream]++];
      Execute(i);
      done[i] = true;
      if (testing::Test::HasFailure()) {
        return;
      }
    }
    EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](bool b) { return b; }))
        << "the program stands still";
  }

  // Unit → what its gradient shard was folded from, in order.
  const std::map<UnitId, std::vector<std::multiset<Contribution>>>& shards() const { return shards_; }
  bool AllReleased() const { return values_.empty() && gradients_.empty() && parameter_slots_.empty(); }

 private:
  using SlotKey = std::pair<int, int>;
  static SlotKey Key(const SlotUse& slot) { return {slot.size_class, slot.index}; }

  void Execute(int i) {
    const Instruction& in = program_.instructions[i];
    const std::string name = std::to_string(i) + " " + ToText(in, outline_);
    switch (in.opcode) {
      case Opcode::kLoadBatch:
        values_.insert({in.target, in.microbatch});
        break;
      case Opcode::kUnshard:
        EXPECT_EQ(stepped_.count(in.target), 0u) << name << ": weights of the next step";
        parameter_slots_[Key(in.slots[0])] = in.target;
        break;
      case Opcode::kReshard:
        EXPECT_EQ(parameter_slots_.erase(Key(in.slots[0])), 1u) << name;
        break;
      case Opcode::kReduceGradients: {
        auto& slot = gradient_slots_[Key(in.slots[0])];
        if (!in.add_parameter_gradients[0]) {
          shards_[in.target].clear();
        }
        std::multiset<Contribution> all;
        for (const auto& [part, contributions] : slot) {
          EXPECT_EQ(part.first, in.target) << name << ": another unit's gradient";
          all.insert(contributions.begin(), contributions.end());
        }
        shards_[in.target].push_back(all);
        slot.clear();
        break;
      }
      case Opcode::kGradientNorm:
        for (const auto& [unit, contributions] : shards_) {
          EXPECT_EQ(contributions.size(), static_cast<size_t>(program_.num_microbatches)) << name;
        }
        norm_ = true;
        break;
      case Opcode::kOptimizerStep:
        EXPECT_TRUE(norm_) << name;
        for (const auto& [slot, unit] : parameter_slots_) {
          EXPECT_NE(unit, in.target) << name << ": still gathered";
        }
        stepped_.insert(in.target);
        break;
      case Opcode::kReport:
        for (int microbatch = 0; microbatch < program_.num_microbatches; ++microbatch) {
          EXPECT_EQ(values_.count({outline_.loss, microbatch}), 1u) << name;
        }
        break;
      case Opcode::kRelease:
        EXPECT_EQ((in.of_gradient ? gradients_ : values_).erase({in.target, in.microbatch}), 1u) << name;
        break;
      default:
        ExecuteNode(in, name);
    }
  }

  void ExecuteNode(const Instruction& in, const std::string& name) {
    const Access& access = AccessOf(outline_.nodes[in.target], in.opcode);
    for (const ValueId value : access.reads) {
      EXPECT_EQ(values_.count({value, in.microbatch}), 1u) << name;
    }
    for (const ValueId value : access.writes) {
      EXPECT_TRUE(values_.insert({value, in.microbatch}).second) << name;
    }
    for (const ValueId value : access.gradient_reads) {
      EXPECT_EQ(gradients_.count({value, in.microbatch}), 1u) << name;
    }
    for (size_t k = 0; k < access.gradient_writes.size(); ++k) {
      EXPECT_EQ(gradients_.count({access.gradient_writes[k], in.microbatch}),
                in.add_value_gradients[k] ? 1u : 0u)
          << name;
      gradients_.insert({access.gradient_writes[k], in.microbatch});
    }
    std::map<UnitId, SlotUse> gradient_slot;
    for (const SlotUse& slot : in.slots) {
      if (slot.role == SlotRole::kParameters) {
        EXPECT_EQ(parameter_slots_.count(Key(slot)), 1u) << name;
        EXPECT_EQ(parameter_slots_[Key(slot)], slot.unit) << name;
      } else {
        gradient_slot[slot.unit] = slot;
      }
    }
    for (size_t k = 0; k < access.parameter_gradients.size(); ++k) {
      const UnitPart part = access.parameter_gradients[k];
      auto& contributions = gradient_slots_[Key(gradient_slot.at(part.unit))][{part.unit, part.part}];
      EXPECT_EQ(contributions.empty(), !in.add_parameter_gradients[k]) << name;
      contributions.insert({in.target, in.microbatch});
    }
  }

  const Outline& outline_;
  const Program& program_;
  std::set<std::pair<ValueId, int>> values_;
  std::set<std::pair<ValueId, int>> gradients_;
  std::map<SlotKey, UnitId> parameter_slots_;
  std::map<SlotKey, std::map<std::pair<UnitId, int>, std::multiset<Contribution>>> gradient_slots_;
  std::map<UnitId, std::vector<std::multiset<Contribution>>> shards_;
  std::set<UnitId> stepped_;
  bool norm_ = false;
};

TEST(InterleavingTest, EveryOrderThatTheWaitsAllowFoldsTheSameContributions) {
  const unsigned seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (const int prefetch : {0, 1, 2}) {
    for (const int layers : {1, 2, 4}) {
      for (const bool tied : {false, true}) {
        const Outline outline = TestOutline(layers, tied);
        const int microbatches = 3;
        const Program program = BuildTrainProgram(outline, TestOptions(outline, prefetch), microbatches);
        for (int run = 0; run < 30; ++run) {
          Machine machine(outline, program);
          machine.Run(random);
          ASSERT_FALSE(HasFailure());
          EXPECT_TRUE(machine.AllReleased());
          ASSERT_EQ(machine.shards().size(), outline.units.size());
          for (const auto& [unit, folded] : machine.shards()) {
            ASSERT_EQ(folded.size(), static_cast<size_t>(microbatches));
            for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
              std::multiset<Contribution> expected;
              for (NodeId node = 0; node < static_cast<int>(outline.nodes.size()); ++node) {
                for (const UnitPart& part : outline.nodes[node].backward.parameter_gradients) {
                  if (part.unit == unit) {
                    expected.insert({node, microbatch});
                  }
                }
              }
              EXPECT_EQ(folded[microbatch], expected) << "of microbatch " << microbatch << ", in order";
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::schedules
