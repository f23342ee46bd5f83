// SPDX-License-Identifier: Apache-2.0
#include "schedules/build/program_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/check/check.h"
#include "schedules/check/together.h"
#include "schedules/passes/passes.h"
#include "schedules/program/text.h"
#include "tests/schedules/divided_job.h"
#include "tests/schedules/proven_stage.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

int CountOf(const Program& program, Opcode opcode, int target) {
  return static_cast<int>(
      std::count_if(program.instructions.begin(), program.instructions.end(),
                    [&](const Instruction& i) { return i.opcode == opcode && i.target == target; }));
}

TEST(ProgramBuilderTest, EveryOutlineStrategyAndScheduleIsProven) {
  std::vector<Outline> outlines = {SmallDecoder(3), SmallDecoder(1, /*tied=*/true), UnusualDecoder(),
                                   MoeDecoder()};
  for (const Stage& stage : TwoStages()) {
    outlines.push_back(stage.outline);
  }
  for (Outline outline : outlines) {
    for (const std::string precision : {"fp32", "bf16", "bf16 beside fp32"}) {
      if (precision == "bf16") {
        UseBf16(outline);
      } else if (precision == "bf16 beside fp32") {
        KeepLastPartsInMainType(outline);
      }
      for (const Strategy& strategy : Strategies()) {
        for (const int ranks : {1, 4}) {
          for (const int microbatches : {1, 3}) {
            SCOPED_TRACE(strategy.name + ", " + precision);
            BuildOptions options = OptionsFor(outline, strategy.name, microbatches, ranks);
            options.num_validation_microbatches = 2;
            ProvenStage(outline, options);
            if (!IsDivided(outline)) {
              options.hold = 1;
              ProvenStage(outline, options, Schedule::kOverlapped);
              options.recompute = RecomputeLayers(outline);
              ProvenStage(outline, options, Schedule::kOverlapped);
            }
          }
        }
      }
    }
  }
}

TEST(ProgramBuilderTest, EightyLayersOfThirtyTwoMicrobatchesAreProven) {
  const Outline outline = SmallDecoder(80);
  ProvenStage(outline, OptionsFor(outline, "zero3", 32, 8));
}

TEST(ProgramBuilderTest, RandomOutlinesAreProvenAtBothBudgets) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Outline outline = RandomOutline(seed);
    for (const Schedule schedule : {Schedule::kSequential, Schedule::kOverlapped}) {
      BuildOptions options = RandomOptions(outline, seed);
      options.hold = schedule == Schedule::kOverlapped;
      const StagePrograms stage = ProvenStage(outline, options, schedule);
      for (const Program* program : stage.All()) {
        options.budget_bytes = std::max(options.budget_bytes, BudgetsOf(*program).least);
      }
      ProvenStage(outline, options, schedule);
    }
  }
}

TEST(ProgramBuilderTest, OnlyBudgetsBelowTheLeastAreRefused) {
  const Outline outline = SmallDecoder();
  BuildOptions options = OptionsFor(outline);
  options.budget_bytes = 1000;
  const std::string message(BuildStage(outline, options).status().message());
  EXPECT_TRUE(message.starts_with("a budget of 1000 bytes is less than the ")) << message;
  EXPECT_TRUE(message.find("that train needs at least, at ") != std::string::npos) << message;
  const std::string least = message.substr(message.find("the ") + 4);
  options.budget_bytes = std::stoll(least);
  ProvenStage(outline, options);
  --options.budget_bytes;
  EXPECT_FALSE(BuildStage(outline, options).ok());
}

TEST(ShardingStrategyTest, GathersAndReductionsFollowTheTable) {
  struct Counts {
    const char* strategy;
    int gathers;  // of a layer
    int reductions;
    int outer_reductions;
    int accumulations;
  };
  for (const Counts& counts :
       {Counts{"replicate", 0, 1, 0, 2}, Counts{"zero1", 1, 1, 0, 2}, Counts{"zero2", 1, 2, 0, 0},
        Counts{"zero3", 4, 2, 0, 0}, Counts{"hsdp", 4, 2, 1, 0}, Counts{"hfsdp", 4, 2, 1, 0}}) {
    SCOPED_TRACE(counts.strategy);
    const Outline outline = SmallDecoder();
    const StagePrograms stage = ProvenStage(outline, OptionsFor(outline, counts.strategy, 2, 4));
    const UnitId layer = FindUnit(outline, "layers.0");
    EXPECT_EQ(CountOf(stage.train, Opcode::kUnshard, layer), counts.gathers);
    EXPECT_EQ(CountOf(stage.train, Opcode::kReduceGradients, layer), counts.reductions);
    EXPECT_EQ(CountOf(stage.train, Opcode::kReduceOuter, layer), counts.outer_reductions);
    EXPECT_EQ(CountOf(stage.train, Opcode::kAccumulate, layer), counts.accumulations);
    EXPECT_EQ(CountOf(stage.train, Opcode::kUnshardOuter, layer), std::string(counts.strategy) == "hfsdp");
  }
}

TEST(ShardingStrategyTest, RankAloneOnInnerAxisExchangesNothing) {
  Outline outline = SmallDecoder();
  for (const bool bf16 : {false, true}) {
    if (bf16) {
      UseBf16(outline);
    }
    for (const Strategy& strategy : Strategies()) {
      SCOPED_TRACE(strategy.name);
      const bool has_outer = strategy.outer.gradients == Placement::kPartial;
      const BuildOptions options = OptionsFor(outline, strategy.name, 2, has_outer ? 2 : 1);
      ASSERT_EQ(options.dense.inner, 1);
      const StagePrograms stage = ProvenStage(outline, options);
      EXPECT_EQ(Count(stage.train, Opcode::kUnshard), 0);
      EXPECT_GT(Count(stage.train, Opcode::kReduceGradients), 0);
      for (const Instruction& in : stage.train.instructions) {
        if (in.opcode == Opcode::kReduceGradients) {
          EXPECT_EQ(in.communicator, -1);
        }
      }
      for (const CommunicatorUse& use : stage.train.communicators) {
        EXPECT_NE(use.group, options.dense.inner_group);
        EXPECT_NE(use.group, options.dense.gather_group);
      }
      for (const Buffer& buffer : stage.train.buffers) {
        EXPECT_NE(buffer.kind, BufferKind::kGathered) << buffer.name;
        EXPECT_TRUE(buffer.kind != BufferKind::kStaging || has_outer) << buffer.name;
      }
      const UnitId layer = FindUnit(outline, "layers.0");
      EXPECT_EQ(CountOf(stage.train, Opcode::kUnshardOuter, layer), strategy.name == "hfsdp");
    }
  }
}

TEST(ShardingStrategyTest, UnsharedExpertsAreNotGathered) {
  const Outline outline = MoeDecoder();
  const BuildOptions options = OptionsFor(outline, "zero3", 2, /*ranks=*/2);
  ASSERT_EQ(options.expert.inner, 1);
  const StagePrograms stage = ProvenStage(outline, options);
  for (UnitId unit = 0; unit < static_cast<int>(outline.units.size()); ++unit) {
    const bool expert = outline.units[unit].group == UnitGroup::kExpert;
    EXPECT_EQ(CountOf(stage.train, Opcode::kUnshard, unit) == 0, expert) << outline.units[unit].name;
    EXPECT_GT(CountOf(stage.train, Opcode::kReduceGradients, unit), 0) << outline.units[unit].name;
  }
}

TEST(ProgramBuilderTest, SavingRunCopiesEachStateAfterUpdate) {
  const Outline outline = MoeDecoder();
  BuildOptions options = OptionsFor(outline);
  const int64_t arena = ProvenStage(outline, options).arena_bytes;
  options.saves = true;
  const StagePrograms stage = ProvenStage(outline, options);
  EXPECT_EQ(stage.arena_bytes, arena);
  EXPECT_EQ(Count(stage.train, Opcode::kSnapshot), 0);
  int snapshots = 0;
  int64_t copied = 0;
  const std::vector<Instruction>& instructions = stage.train_save.instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].opcode != Opcode::kSnapshot) {
      continue;
    }
    ++snapshots;
    EXPECT_EQ(stage.train_save.streams[instructions[i].stream].name, "save");
    const Opcode before = instructions[i - 1].opcode;
    EXPECT_TRUE(before == Opcode::kOptimizerStep || before == Opcode::kUpdateStates);
    EXPECT_EQ(instructions[i].waits, (std::vector<Wait>{{static_cast<int>(i) - 1}}));
    for (const Operand& operand : instructions[i].operands) {
      const Buffer& buffer = stage.train_save.buffers[operand.buffer];
      if (operand.mode == Mode::kWrites) {
        EXPECT_GE(buffer.address, stage.saved_at);
        copied += buffer.bytes.bound;
      }
    }
  }
  EXPECT_GT(snapshots, 1);
  EXPECT_LE(snapshots, kAhead);
  EXPECT_LE(copied, stage.host_bytes - stage.saved_at);
}

// A stream that is full stops the issuing thread, and with it all others.
TEST(ProgramBuilderTest, OfManyUnitsASnapshotCopiesSeveral) {
  const Outline outline = SmallDecoder(40);
  BuildOptions options = OptionsFor(outline);
  options.saves = true;
  const StagePrograms stage = ProvenStage(outline, options);
  EXPECT_LE(Count(stage.train_save, Opcode::kSnapshot), kAhead);
  EXPECT_GT(Count(stage.train_save, Opcode::kSnapshot), kAhead / 2);
}

TEST(ProgramBuilderTest, LocalsOfBeginLieWhereTrainHasThem) {
  const Outline outline = SmallDecoder();
  const StagePrograms stage = ProvenStage(outline, OptionsFor(outline));
  for (const Buffer& buffer : stage.begin.buffers) {
    const auto same = std::find_if(stage.train.buffers.begin(), stage.train.buffers.end(),
                                   [&](const Buffer& other) { return other.name == buffer.name; });
    ASSERT_NE(same, stage.train.buffers.end()) << buffer.name;
    EXPECT_EQ(same->address, buffer.address) << buffer.name;
  }
}

TEST(OverlapTest, EachUnitIsGatheredOnceASpan) {
  const Outline outline = MoeDecoder();
  BuildOptions options = OptionsFor(outline, "zero3", 2, 4);
  options.hold = 1;
  const StagePrograms stage = ProvenStage(outline, options, Schedule::kOverlapped);
  // Forward of microbatch 0; forward of 1 over the backward of 0; backward of 1. The middle pair shares
  // nothing here: it meets layer 0 and layer 1, and then layer 1 and layer 0.
  for (const char* unit : {"layers.0", "layers.1", "layers.0.experts", "layers.1.experts"}) {
    EXPECT_LE(CountOf(stage.train, Opcode::kUnshard, FindUnit(outline, unit)), 3) << unit;
  }
  options.hold = 0;
  const StagePrograms eager = ProvenStage(outline, options, Schedule::kOverlapped);
  EXPECT_GT(Count(eager.train, Opcode::kUnshard), Count(stage.train, Opcode::kUnshard));
}

// Layer 0 keeps what its forward gathered until its backward; layer 1 is gathered for each.
TEST(KeepGatheredTest, OneGatherServesForwardAndBackward) {
  const Outline outline = SmallDecoder();
  const UnitId kept = FindUnit(outline, "layers.0");
  const UnitId other = FindUnit(outline, "layers.1");
  for (const char* strategy : {"zero3", "hsdp", "hfsdp"}) {
    SCOPED_TRACE(strategy);
    BuildOptions options = OptionsFor(outline, strategy, 3, 4);
    const StagePrograms without = ProvenStage(outline, options);
    options.keep_gathered.assign(outline.units.size(), false);
    options.keep_gathered[kept] = true;
    const StagePrograms stage = ProvenStage(outline, options);
    EXPECT_EQ(CountOf(without.train, Opcode::kUnshard, kept), 2 * 3);
    EXPECT_EQ(CountOf(stage.train, Opcode::kUnshard, kept), 3);
    EXPECT_EQ(CountOf(stage.train, Opcode::kUnshard, other), 2 * 3);
    EXPECT_EQ(CountOf(stage.validate, Opcode::kUnshard, kept),
              CountOf(without.validate, Opcode::kUnshard, kept));
    EXPECT_GT(stage.arena_bytes, without.arena_bytes);
  }
}

TEST(KeepGatheredTest, HeldUnitIsNotGatheredAgain) {
  const Outline outline = MoeDecoder(3);
  BuildOptions options = OptionsFor(outline, "zero3", 4, 4);
  options.hold = 1;
  options.keep_gathered.assign(outline.units.size(), true);
  const StagePrograms stage = ProvenStage(outline, options, Schedule::kOverlapped);
  // The forward of a microbatch comes before the backward of the one before it has ended; not in the last
  // layer.
  for (const char* unit : {"layers.0", "layers.1", "layers.0.experts", "layers.1.experts"}) {
    EXPECT_EQ(CountOf(stage.train, Opcode::kUnshard, FindUnit(outline, unit)), 1) << unit;
  }
  EXPECT_EQ(CountOf(stage.train, Opcode::kUnshard, FindUnit(outline, "layers.2.experts")), 4);
}

TEST(OverlapTest, ComputeAwaitsDispatchOnlyWhenDataIsNeeded) {
  const Outline outline = MoeDecoder();
  BuildOptions options = OptionsFor(outline, "zero3", 3, 4);
  options.hold = 1;
  const StagePrograms stage = ProvenStage(outline, options, Schedule::kOverlapped);
  for (const Instruction& instruction : stage.train.instructions) {
    if (stage.train.streams[instruction.stream].name != "compute") {
      continue;
    }
    for (const Wait& wait : instruction.waits) {
      const Instruction& other = stage.train.instructions[wait.instruction];
      if (stage.train.streams[other.stream].name != "dispatch" || wait.frees > 0) {
        continue;
      }
      const bool shares =
          std::any_of(instruction.operands.begin(), instruction.operands.end(), [&](const Operand& a) {
            return std::any_of(other.operands.begin(), other.operands.end(), [&](const Operand& b) {
              return a.buffer == b.buffer && (a.mode != Mode::kReads || b.mode != Mode::kReads);
            });
          });
      EXPECT_TRUE(shares) << ToText(instruction, outline) << " waits for " << ToText(other, outline);
    }
  }
}

// In the sequential schedule, so that the exchange of the backward runs beside them.
TEST(SeparateWeightsTest, ExpertsWeightHalvesRunBesideWhatFollowsThem) {
  for (const char* strategy : {"zero1", "zero2", "zero3", "hsdp"}) {
    SCOPED_TRACE(strategy);
    const Outline outline = MoeDecoder(2);
    BuildOptions options = OptionsFor(outline, strategy, 2, 4);
    options.separate_weights = true;
    const StagePrograms stage = ProvenStage(outline, options, Schedule::kSequential);
    const Program& program = stage.train;
    VectorClocks clocks(static_cast<int>(program.streams.size()));
    int beside = 0;
    int newest_weight = -1;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      const bool weight = instruction.opcode == Opcode::kBackwardWeight;
      newest_weight =
          weight && outline.nodes[instruction.target].kind == "experts" ? static_cast<int>(i) : newest_weight;
      EXPECT_EQ(program.streams[instruction.stream].name == "weights",
                weight && outline.nodes[instruction.target].kind == "experts");
      for (const Wait& wait : instruction.waits) {
        clocks.Wait(instruction.stream, wait.instruction);
      }
      if (instruction.opcode == Opcode::kBackwardInput &&
          outline.nodes[instruction.target].kind == "dispatch") {
        ASSERT_GE(newest_weight, 0);
        EXPECT_EQ(outline.nodes[program.instructions[newest_weight].target].layer,
                  outline.nodes[instruction.target].layer);
        beside += !clocks.Knows(clocks.Now(instruction.stream), newest_weight);
      }
      clocks.Issue(instruction);
    }
    EXPECT_EQ(beside, 2 * 2) << "each layer's and microbatch's exchange starts without them";
  }
}

// The order of one pair: the forward of microbatch 1 in layer 0 over the backward of microbatch 0 in layer 1,
// as the host issues it. Each exchange is issued beside compute of the other microbatch, before what waits
// for it.
TEST(OverlapTest, HostIssuesALayerPairInOrder) {
  const Outline outline = MoeDecoder(2);
  BuildOptions options = OptionsFor(outline, "zero3", 2, 4);
  options.hold = 1;
  const auto issued = [&](Schedule schedule) {
    std::vector<std::string> names;
    for (const Instruction& instruction : ProvenStage(outline, options, schedule).train.instructions) {
      const bool forward = instruction.opcode == Opcode::kForward && instruction.microbatch == 1;
      const bool input = instruction.opcode == Opcode::kBackwardInput;
      const bool weight = instruction.opcode == Opcode::kBackwardWeight;
      const bool backward = (input || weight) && instruction.microbatch == 0;
      if ((!forward && !backward) || outline.nodes[instruction.target].layer != (forward ? 0 : 1)) {
        continue;
      }
      const std::string& name = outline.nodes[instruction.target].name;
      names.push_back((forward ? "f." : weight ? "W." : "b.") + name.substr(name.rfind('.') + 1));
    }
    return names;
  };
  EXPECT_THAT(
      issued(Schedule::kOverlapped),
      testing::ElementsAre("b.finish", "b.combine", "f.attention", "f.route", "f.permute", "b.experts",
                           "f.dispatch", "W.experts", "b.dispatch", "f.experts", "f.combine", "b.permute",
                           "b.route", "b.attention", "W.attention", "f.finish"));
  EXPECT_THAT(
      issued(Schedule::kOverlappedUndelayed),
      testing::ElementsAre("b.finish", "b.combine", "f.attention", "f.route", "f.permute", "b.experts",
                           "W.experts", "f.dispatch", "b.dispatch", "f.experts", "f.combine", "b.permute",
                           "b.route", "b.attention", "W.attention", "f.finish"));
}

TEST(RecomputeTest, LayerRecomputesOnlyWhatWasNotKept) {
  const Outline outline = SmallDecoder();
  BuildOptions options = OptionsFor(outline);
  options.recompute = RecomputeLayers(outline);
  const StagePrograms stage = ProvenStage(outline, options);
  EXPECT_EQ(Count(stage.train, Opcode::kRecompute), 2 * 2 * 2);
  EXPECT_EQ(Count(stage.validate, Opcode::kRecompute), 0);
  EXPECT_LT(stage.arena_bytes, ProvenStage(outline, OptionsFor(outline)).arena_bytes);
}

TEST(RecomputeTest, CommunicatingChainIsIssuedALayerPairAhead) {
  const Outline outline = MoeDecoder(3);
  BuildOptions options = OptionsFor(outline, "zero3", 2, 4);
  options.hold = 1;
  const StagePrograms kept = ProvenStage(outline, options, Schedule::kOverlapped);
  options.recompute = RecomputeLayers(outline);
  const StagePrograms stage = ProvenStage(outline, options, Schedule::kOverlapped);
  const auto at = [&](Opcode opcode, const char* node) {
    return Find(stage.train, opcode, FindNode(outline, node), 0);
  };
  EXPECT_LT(at(Opcode::kRecompute, "layers.1.dispatch"), at(Opcode::kBackwardInput, "layers.2.dispatch"));
  EXPECT_GT(Count(stage.train, Opcode::kUnshard), Count(kept.train, Opcode::kUnshard));
}

TEST(RecomputeTest, LocalChainRecomputesBeforeItsFirstReader) {
  const Outline outline = SmallDecoder(3);
  BuildOptions options = OptionsFor(outline, "zero3", 2, 4);
  options.hold = 1;
  options.recompute = RecomputeLayers(outline);
  const StagePrograms stage = ProvenStage(outline, options, Schedule::kOverlappedUndelayed);
  const auto at = [&](Opcode opcode, const char* node) {
    return Find(stage.train, opcode, FindNode(outline, node), 0);
  };
  EXPECT_GT(at(Opcode::kRecompute, "layers.1.attention"), at(Opcode::kBackwardInput, "layers.2.attention"));
  EXPECT_LT(at(Opcode::kRecompute, "layers.1.attention"), at(Opcode::kBackwardInput, "layers.1.mlp"));
}

TEST(PipelinedStageTest, RefusedBudgetNamesStageAndLeast) {
  const Outline outline = TwoStages()[1].outline;
  BuildOptions options = OptionsFor(outline, "zero3", 4);
  options.budget_bytes = 1;
  const absl::Status status = BuildStage(outline, options, Pipelined(outline, 2, 4), {}).status();
  EXPECT_THAT(std::string(status.message()),
              testing::ContainsRegex("less than the [0-9]+ bytes that train of stage 1 needs at least, at "));
}

}  // namespace
}  // namespace tandem::schedules
