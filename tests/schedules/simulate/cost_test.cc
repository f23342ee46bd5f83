// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/cost.h"

#include <gtest/gtest.h>

#include <set>

#include "schedules/program/signature.h"
#include "schedules/simulate/measurement.h"
#include "tests/schedules/simulate/hand_program.h"

namespace tandem::schedules {
namespace {

// A program that a test may change before it asks what an instruction of it costs.
class CostTest : public testing::Test {
 protected:
  Cost Of(const Instruction& instruction, const Workload& workload = HandWorkload()) const {
    return CostModel(outline_, program_, workload, profile_).Of(instruction);
  }
  Cost OfFirst(const Workload& workload = HandWorkload()) const {
    return Of(program_.instructions[0], workload);
  }

  // Domains of 8 ranks, and a slower network between them.
  void SpreadOverMachines() {
    profile_.link = {.max_ranks = 8, .bytes_per_second = 4e9, .latency_seconds = 1e-6, .hop_seconds = 1e-6};
    profile_.network = {.bytes_per_second = 1e9, .latency_seconds = 2e-6, .hop_seconds = 10e-6};
    program_.buffers[2].bytes = {16000, 16000};
  }

  Outline outline_ = HandOutline();
  Program program_ = HandProgram();
  DeviceProfile profile_ = HandProfile();
};

// An instruction on buffers of 1000 bytes, one for each operand.
Work WorkOn(Opcode opcode, const std::vector<std::pair<BufferKind, Mode>>& operands, int ranks) {
  Program program = HandProgram();
  program.buffers.clear();
  Instruction instruction{.opcode = opcode, .target = 0, .communicator = ranks > 0 ? 0 : -1};
  for (const auto& [kind, mode] : operands) {
    const Role role = kind == BufferKind::kStaging     ? Role::kStaging
                      : kind == BufferKind::kGradients ? Role::kReduced
                                                       : Role::kWeights;
    instruction.operands.push_back(
        {.buffer = static_cast<BufferId>(program.buffers.size()), .mode = mode, .role = role});
    program.buffers.push_back({.kind = kind, .bytes = {1000, 4000}});
  }
  return WorkOf(HandOutline(), program, instruction, HandWorkload(ranks));
}

TEST_F(CostTest, GatherMovesItsOutputAndOneRankCopies) {
  const std::vector<std::pair<BufferKind, Mode>> operands = {{BufferKind::kWeights, Mode::kReads},
                                                             {BufferKind::kGathered, Mode::kWrites}};
  EXPECT_EQ(WorkOn(Opcode::kUnshard, operands, 8), (Work{.link_bytes = 1000, .ranks = 8}));
  EXPECT_EQ(WorkOn(Opcode::kUnshard, operands, 1), (Work{.bytes = 2000}));
}

TEST_F(CostTest, ReductionExchangesAndFoldsAloneOnlyFolds) {
  const auto reduce = [](Mode mode, int ranks) {
    return WorkOn(Opcode::kReduceGradients,
                  {{BufferKind::kContribution, Mode::kReads},
                   {BufferKind::kStaging, Mode::kWrites},
                   {BufferKind::kGradients, mode}},
                  ranks);
  };
  EXPECT_EQ(reduce(Mode::kWrites, 4), (Work{.bytes = 2000, .link_bytes = 1000, .ranks = 4}));
  EXPECT_EQ(reduce(Mode::kAdds, 4), (Work{.bytes = 3000, .link_bytes = 1000, .ranks = 4}));
  EXPECT_EQ(WorkOn(Opcode::kReduceGradients,
                   {{BufferKind::kContribution, Mode::kReads}, {BufferKind::kGradients, Mode::kAdds}},
                   /*ranks=*/0),
            (Work{.bytes = 3000}));
}

TEST_F(CostTest, ReductionGathersAReplicatedSum) {
  const auto link_bytes = [](Opcode opcode, const char* dense, const char* expert, UnitGroup group) {
    Program program = HandProgram();
    program.buffers = {{.kind = BufferKind::kFullGradient, .bytes = {3000, 3000}},
                       {.kind = BufferKind::kStaging, .bytes = {3000, 3000}},
                       {.kind = BufferKind::kGradients, .bytes = {1000, 1000}},
                       {.kind = BufferKind::kNormTerms, .bytes = {8, 8}}};
    const Instruction instruction{
        .opcode = opcode,
        .target = 0,
        .communicator = 0,
        .operands =
            opcode == Opcode::kReduceOuter
                ? MakeOperands(opcode, {{Role::kReduced, 2}, {Role::kStaging, 1}, {Role::kNormTerms, 3}})
                : MakeOperands(opcode, {{Role::kSum, 0}, {Role::kStaging, 1}, {Role::kReduced, 2}})};
    Outline outline = HandOutline();
    outline.units[0].group = group;
    Workload workload = HandWorkload(4);
    workload.strategy = StrategyOf(dense).value();
    workload.expert_strategy = StrategyOf(expert).value();
    return WorkOf(outline, program, instruction, workload).link_bytes;
  };
  constexpr UnitGroup kDense = UnitGroup::kDense;
  for (const char* strategy : {"zero1", "zero2", "zero3", "hsdp", "hfsdp"}) {
    EXPECT_EQ(link_bytes(Opcode::kReduceGradients, strategy, "replicate", kDense), 3000) << strategy;
  }
  EXPECT_EQ(link_bytes(Opcode::kReduceGradients, "replicate", "zero3", kDense), 3000 + 1000);
  EXPECT_EQ(link_bytes(Opcode::kReduceGradients, "zero3", "replicate", UnitGroup::kExpert), 3000 + 1000);
  EXPECT_EQ(link_bytes(Opcode::kReduceOuter, "hsdp", "hfsdp", kDense), 2 * 1000);
  EXPECT_EQ(link_bytes(Opcode::kReduceOuter, "hfsdp", "hsdp", kDense), 1000);
}

TEST_F(CostTest, AnOptimizerStepMovesSevenShards) {
  EXPECT_EQ(WorkOn(Opcode::kOptimizerStep,
                   {{BufferKind::kGradients, Mode::kReads},
                    {BufferKind::kWeights, Mode::kAdds},
                    {BufferKind::kOptimizerState, Mode::kAdds},
                    {BufferKind::kOptimizerState, Mode::kAdds}},
                   0),
            (Work{.bytes = 7000}));
}

TEST_F(CostTest, APartCountsItsOwnBytes) {
  program_.buffers = {
      {.kind = BufferKind::kContribution, .bytes = {1000, 1000}, .parts = {{"a", 0, 100}, {"b", 100, 350}}}};
  const Instruction zero{
      .opcode = Opcode::kZero, .target = 0, .operands = {{.buffer = 0, .part = 1, .mode = Mode::kWrites}}};
  EXPECT_EQ(WorkOf(outline_, program_, zero, HandWorkload()), (Work{.bytes = 250}));
}

TEST_F(CostTest, ANodePassCostsWhatItsNodeDeclares) {
  outline_.nodes[0].backward_weight = {.flops = 77, .bytes_moved = 88};
  const Instruction weight{.opcode = Opcode::kBackwardWeight, .target = 0};
  EXPECT_EQ(WorkOf(outline_, program_, weight, HandWorkload()), (Work{.flops = 77, .bytes = 88}));
  outline_.nodes[0].forward = {.link_bytes = 99};
  const Instruction dispatch{.opcode = Opcode::kForward, .target = 0, .communicator = 1};
  EXPECT_EQ(WorkOf(outline_, program_, dispatch, HandWorkload(4)), (Work{.link_bytes = 99, .ranks = 4}));
}

TEST_F(CostTest, RecomputeDoesNotCountKeptValues) {
  outline_.values = {{.name = "hidden", .bytes = {1000, 1000}}, {.name = "inner", .bytes = {500, 500}}};
  outline_.nodes[0].forward = {.writes = {0, 1}, .flops = 70, .bytes_moved = 8000};
  outline_.nodes[0].write_flops = {30, 40};
  program_.buffers = {{.kind = BufferKind::kActivation, .subject = 1, .bytes = {500, 500}},
                      {.kind = BufferKind::kScratch, .subject = 0, .bytes = {500, 500}}};
  const Instruction again{.opcode = Opcode::kRecompute,
                          .target = 0,
                          .operands = {{.buffer = 0, .mode = Mode::kWrites},
                                       {.buffer = 1, .mode = Mode::kWrites, .role = Role::kScratch}}};
  EXPECT_EQ(WorkOf(outline_, program_, again, HandWorkload()), (Work{.flops = 40, .bytes = 7000}));
  outline_.nodes[0].write_flops.clear();
  EXPECT_EQ(WorkOf(outline_, program_, again, HandWorkload()).flops, 70) << "nothing is known of the parts";
}

TEST_F(CostTest, AttentionHasItsOwnRates) {
  outline_.nodes[0].compute = "bf16";
  outline_.nodes[0].forward = {.flops = 3e6, .score_flops = 1e6};
  outline_.nodes[0].backward_input = outline_.nodes[0].forward;
  profile_.overhead_seconds = 0;
  profile_.compute["bf16"] = {.flops_per_second = 4e9};
  const Instruction forward{.opcode = Opcode::kForward, .target = 0};
  const Instruction backward{.opcode = Opcode::kBackwardInput, .target = 0};
  EXPECT_NEAR(Of(forward).seconds, 0.75e-3, 1e-12);
  profile_.compute["bf16 attention"] = {.flops_per_second = 2e9};
  profile_.compute["bf16 attention backward"] = {.flops_per_second = 1e9};
  EXPECT_NEAR(Of(forward).seconds, 1e-3, 1e-12);
  EXPECT_NEAR(Of(backward).seconds, 1.5e-3, 1e-12);
}

TEST_F(CostTest, RowsMoveBetweenTheProducts) {
  outline_.nodes[0].forward = {.flops = 1e6, .bytes_moved = 4e5, .row_bytes = 1e5};
  profile_.overhead_seconds = 0;
  profile_.memory_bytes_per_second = 1e9;
  for (auto& [type, rate] : profile_.compute) {
    rate.flops_per_second = 1e9;
  }
  const Instruction forward{.opcode = Opcode::kForward, .target = 0};
  EXPECT_NEAR(Of(forward).seconds, 1.1e-3, 1e-12);
  outline_.nodes[0].forward.bytes_moved = 4e6;  // all that it moves takes longer than its products
  EXPECT_NEAR(Of(forward).seconds, 4e-3, 1e-12);
}

TEST_F(CostTest, WhatGoesToAPeerGoesThereWhole) {
  const Instruction send{
      .opcode = Opcode::kSend, .target = 0, .communicator = 0, .operands = {{.buffer = 5}}};
  EXPECT_NEAR(Of(send, HandWorkload(64)).seconds, 600e-9, 1e-15);
}

TEST_F(CostTest, WhatOnlyTheHostDoesCostsNothing) {
  profile_.overhead_seconds = 1;
  const Cost cost = Of({.opcode = Opcode::kHostWait, .target = 0});
  EXPECT_EQ(cost.seconds, 0);
  EXPECT_EQ(cost.source, CostSource::kNothing);
}

TEST_F(CostTest, KindsOmitNumbersAndSayWhatAdds) {
  EXPECT_EQ(KindOf(outline_, program_, program_.instructions[0]), "unshard layers.*");
  EXPECT_EQ(KindOf(outline_, program_, program_.instructions[1]), "forward layers.*.a fp32");
  program_.buffers[1].kind = BufferKind::kGradients;
  const Instruction reduce{.opcode = Opcode::kReduceGradients,
                           .target = 1,
                           .communicator = 1,
                           .operands = {{.buffer = 1, .mode = Mode::kAdds}}};
  EXPECT_EQ(KindOf(outline_, program_, reduce), "reduce layers.* add");
  const Instruction optimizer{
      .opcode = Opcode::kOptimizerStep, .target = 0, .operands = {{.buffer = 0, .mode = Mode::kAdds}}};
  EXPECT_EQ(KindOf(outline_, program_, optimizer), "optimizer layers.*") << "it always adds to the weights";
}

TEST_F(CostTest, ACollectiveBeyondTheDomainPaysTheNetwork) {
  SpreadOverMachines();
  const auto micros = [this](int ranks) { return OfFirst(HandWorkload(ranks)).seconds * 1e6; };
  EXPECT_NEAR(micros(8), 1 + 7 * 1 + 14000 / 4e3, 1e-9);
  // 2 machines of 8: 14 hops within, 1 between; 15/16 of the bytes at the slower rate.
  EXPECT_NEAR(micros(16), 2 + 14 * 1 + 1 * 10 + 15000 / 1e3, 1e-9);
  EXPECT_NEAR(micros(1), 17000 / 1e3, 1e-9) << "one rank copies";
}

// Replicas are as many ranks apart as a replica has: the smaller the part of a machine that a group has, the
// smaller its part of the adapters.
TEST_F(CostTest, GroupAcrossMachinesHasItsNetworkShare) {
  SpreadOverMachines();
  const auto micros = [this](const GroupShape& shape) {
    return OfFirst({.groups = {{"dp_cp_ag", shape}}}).seconds * 1e6;
  };
  EXPECT_NEAR(micros({.ranks = 8, .stride = 1}), 1 + 7 * 1 + 14000 / 4e3, 1e-9);
  EXPECT_NEAR(micros({.ranks = 2, .stride = 4}), 1 + 1 * 1 + 8000 / 4e3, 1e-9) << "two ranks of one machine";
  EXPECT_NEAR(micros({.ranks = 8, .stride = 4}), 2 + 4 * 1 + 3 * 10 + 14000 / (1e3 * 2 / 8), 1e-9);
  EXPECT_NEAR(micros({.ranks = 8, .stride = 8}), 2 + 7 * 10 + 14000 / (1e3 / 8), 1e-9);
  EXPECT_NEAR(micros({.ranks = 8, .stride = 64}), 2 + 7 * 10 + 14000 / (1e3 / 8), 1e-9);
}

TEST_F(CostTest, AGroupHasItsOwnSize) {
  const Workload workload{.groups = {{"dp_cp", {64}}, {"dp_cp_ag", {4}}}};
  EXPECT_EQ(WorkOf(outline_, program_, program_.instructions[0], workload).ranks, 4);
}

TEST_F(CostTest, EntryOfAnotherSizeIsScaled) {
  profile_.measured = {
      {.kind = "forward layers.*.a fp32", .seconds = 10e-6, .work = {.flops = 2000}, .samples = 3}};
  const Cost scaled = Of(program_.instructions[1]);
  EXPECT_EQ(scaled.source, CostSource::kScaled);
  EXPECT_NEAR(scaled.seconds, 20e-6, 1e-12);
  EXPECT_EQ(Of(program_.instructions[3]).source, CostSource::kEstimated);
  profile_.measured.push_back(
      {.kind = "forward layers.*.a fp32", .seconds = 7e-6, .work = {.flops = 4000}, .samples = 3});
  const Cost measured = Of(program_.instructions[1]);
  EXPECT_EQ(measured.source, CostSource::kMeasured);
  EXPECT_EQ(measured.seconds, 7e-6);
}

TEST_F(CostTest, TimeOfNoWorkGivesNoRate) {
  for (const double seconds : {0.0, 1.0}) {
    profile_.measured = {{.kind = "forward layers.*.a fp32", .seconds = seconds, .samples = 1}};
    const Cost estimated = Of(program_.instructions[1]);
    EXPECT_EQ(estimated.source, CostSource::kEstimated);
    EXPECT_NEAR(estimated.seconds, 4000 / 1e9, 1e-15);
    profile_.measured.push_back(
        {.kind = "forward layers.*.a fp32", .seconds = 10e-6, .work = {.flops = 2000}, .samples = 3});
    EXPECT_NEAR(Of(program_.instructions[1]).seconds, 20e-6, 1e-12);
  }
}

TEST_F(CostTest, NodeUsesTheRateOfItsType) {
  profile_.compute["bf16"].flops_per_second = 1e10;
  outline_.nodes[0].compute = "bf16";
  EXPECT_NEAR(Of(program_.instructions[1]).seconds, 4000 / 1e10, 1e-15);
  EXPECT_NEAR(Of(program_.instructions[3]).seconds, 2000 / 1e9, 1e-15);
}

TEST_F(CostTest, TimesApplyToTheirTypeOnly) {
  profile_.compute["bf16"].flops_per_second = 1e10;
  const std::vector<InstructionTime> times(program_.instructions.size(), {.end_ns = 9000});
  profile_.measured =
      MeasureTimes(outline_, program_, HandWorkload(), {{{.program = program_.name, .instructions = times}}});
  EXPECT_EQ(Of(program_.instructions[1]).source, CostSource::kMeasured);
  outline_.nodes[0].compute = "bf16";
  EXPECT_EQ(Of(program_.instructions[1]).source, CostSource::kEstimated);
  EXPECT_EQ(Of(program_.instructions[3]).source, CostSource::kMeasured) << "it is of the type measured";
  EXPECT_EQ(OfFirst().source, CostSource::kMeasured) << "bytes have no arithmetic";
}

TEST_F(CostTest, OneRanksTimeDoesNotApplyToCollectives) {
  profile_.measured = {{.kind = "unshard layers.*", .seconds = 1, .work = {.bytes = 4000}, .samples = 1}};
  EXPECT_EQ(OfFirst().source, CostSource::kEstimated);
}

}  // namespace
}  // namespace tandem::schedules
