// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "schedules/program/text.h"
#include "tests/schedules/proven_stage.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

using ::testing::AnyOf;
using ::testing::StartsWith;

// Per gather, in issue order: how many gathers that are used no later than it were still to be used when it
// was issued.
std::vector<int> GathersAhead(const Program& program) {
  std::vector<int> first_use(program.buffers.size(), -1);
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    for (const Operand& operand : program.instructions[i].operands) {
      if (program.instructions[i].opcode != Opcode::kUnshard && first_use[operand.buffer] < 0) {
        first_use[operand.buffer] = i;
      }
    }
  }
  std::vector<int> ahead;
  std::vector<int> uses;  // of the gathers issued so far
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    if (program.instructions[i].opcode != Opcode::kUnshard) {
      continue;
    }
    const int use = first_use[program.instructions[i].operands.back().buffer];
    ahead.push_back(static_cast<int>(
        std::count_if(uses.begin(), uses.end(), [&](int other) { return other > i && other < use; })));
    uses.push_back(use);
  }
  return ahead;
}

TEST(OrderTest, GatherIsIssuedPrefetchSpansAhead) {
  const Outline outline = SmallDecoder(6);
  for (const int prefetch : {0, 1, 2}) {
    BuildOptions options = OptionsFor(outline, "zero3", 1);
    options.prefetch = prefetch;
    const std::vector<int> ahead = GathersAhead(ProvenStage(outline, options).train);
    EXPECT_EQ(*std::max_element(ahead.begin(), ahead.end()), prefetch == 0 ? 0 : prefetch);
  }
}

TEST(OrderTest, GatherWaitsForReadersBeyondThePrefetchDistance) {
  const Outline outline = SmallDecoder(6);
  const Program train = ProvenStage(outline, OptionsFor(outline, "zero3", 1)).train;
  const int gather = Find(train, Opcode::kUnshard, FindUnit(outline, "layers.4"), 0);
  const int reader = Find(train, Opcode::kForward, FindNode(outline, "layers.2.mlp"), 0);
  EXPECT_TRUE(std::any_of(train.instructions[gather].waits.begin(), train.instructions[gather].waits.end(),
                          [&](const Wait& wait) { return wait.instruction == reader && wait.frees == 0; }));
}

TEST(OrderTest, DenseAndExpertUnitShareASpan) {
  const Outline outline = MoeDecoder(4);
  const Program train = ProvenStage(outline, OptionsFor(outline, "zero3", 1, 4)).train;
  const int first_use = Find(train, Opcode::kForward, FindNode(outline, "layers.1.attention"), 0);
  for (const char* unit : {"layers.2", "layers.2.experts"}) {
    EXPECT_LT(Find(train, Opcode::kUnshard, FindUnit(outline, unit), 0), first_use) << unit;
  }
  for (const char* unit : {"layers.3", "layers.3.experts"}) {
    EXPECT_GT(Find(train, Opcode::kUnshard, FindUnit(outline, unit), 0), first_use) << unit;
  }
}

TEST(OrderTest, ABatchIsLoadedOneMicrobatchAhead) {
  const Outline outline = SmallDecoder();
  const Program train = ProvenStage(outline, OptionsFor(outline, "zero3", 3)).train;
  const NodeId embedding = FindNode(outline, "embedding");
  for (int microbatch = 1; microbatch < 3; ++microbatch) {
    const int load = Find(train, Opcode::kLoadBatch, outline.batch, microbatch);
    EXPECT_LT(load, Find(train, Opcode::kForward, embedding, microbatch - 1));
    if (microbatch > 1) {
      EXPECT_GT(load, Find(train, Opcode::kForward, embedding, microbatch - 2));
    }
  }
}

TEST(OrderTest, GathersOfKeptParametersAwaitOnlyTheOptimizer) {
  const Outline outline = SmallDecoder(4);
  const Program train = ProvenStage(outline, OptionsFor(outline, "zero2", 2, 4)).train;
  for (const Instruction& instruction : train.instructions) {
    if (instruction.opcode == Opcode::kUnshard) {
      ASSERT_EQ(instruction.waits.size(), 1) << ToText(instruction, outline);
      const Instruction& step = train.instructions[instruction.waits[0].instruction];
      EXPECT_EQ(step.opcode, Opcode::kOptimizerStep);
      EXPECT_EQ(step.target, instruction.target);
    }
  }
}

TEST(GradientsTest, PartWithTwoWritersIsRoundedOnce) {
  Outline outline = SmallDecoder(1, /*tied=*/true);
  const auto rounds = [&] {
    return Count(ProvenStage(outline, OptionsFor(outline, "zero3", 2)).train, Opcode::kRound);
  };
  EXPECT_EQ(rounds(), 0);  // the transport type is the main type
  UseBf16(outline);
  EXPECT_EQ(rounds(), 2);  // a microbatch each
}

TEST(GradientsTest, PartSummedByOnePassIsRoundedOnce) {
  Outline outline = UnusualDecoder();
  UseBf16(outline);
  const UnitId extra = FindUnit(outline, "extra_head");
  const Program train = ProvenStage(outline, OptionsFor(outline, "zero3", 2)).train;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    const int round = Find(train, Opcode::kRound, extra, microbatch);
    EXPECT_GT(round, Find(train, Opcode::kForward, FindNode(outline, "extra_head"), microbatch));
    EXPECT_LT(round, Find(train, Opcode::kReduceGradients, extra, microbatch));
  }
}

TEST(GradientsTest, ValidationForwardsWriteNoGradients) {
  const Outline outline = UnusualDecoder();
  BuildOptions options = OptionsFor(outline, "zero3", 1);
  options.num_validation_microbatches = 1;
  const Program validate = ProvenStage(outline, options).validate;
  const int forward = Find(validate, Opcode::kForward, FindNode(outline, "extra_head"), 0);
  for (const Operand& operand : validate.instructions[forward].operands) {
    const BufferKind kind = validate.buffers[operand.buffer].kind;
    EXPECT_NE(kind, BufferKind::kActivationGradient);
    EXPECT_NE(kind, BufferKind::kContribution);
    EXPECT_NE(kind, BufferKind::kCollected);
  }
}

TEST(GradientsTest, UnwrittenPartsAreZeroedAndFrozenUnitsSkipped) {
  const Outline outline = UnusualDecoder();
  const Program train = ProvenStage(outline, OptionsFor(outline, "zero3", 1)).train;
  const UnitId unused = FindUnit(outline, "unused");
  const UnitId frozen = FindUnit(outline, "layers.0");
  int zeros = 0;
  for (const Instruction& instruction : train.instructions) {
    zeros += instruction.opcode == Opcode::kZero && instruction.target == unused;
  }
  EXPECT_EQ(zeros, 2);  // its parts
  for (const Buffer& buffer : train.buffers) {
    if (buffer.subject == frozen) {
      EXPECT_NE(buffer.kind, BufferKind::kGradients);
      EXPECT_NE(buffer.kind, BufferKind::kOptimizerState);
      EXPECT_NE(buffer.kind, BufferKind::kContribution);
    }
  }
}

TEST(PrecisionTest, EachRoleHasItsElementSize) {
  Outline outline = SmallDecoder(1);
  UseBf16(outline);
  const BuildOptions options = OptionsFor(outline, "zero3", 1, 4);
  const Program train = ProvenStage(outline, options).train;
  const UnitId layer = FindUnit(outline, "layers.0");
  const int64_t shard = options.units[layer].classes[0].shard_elements;
  const auto bytes = [&](BufferKind kind) {
    const auto found = std::find_if(train.buffers.begin(), train.buffers.end(), [&](const Buffer& buffer) {
      return buffer.kind == kind && buffer.subject == layer;
    });
    return found == train.buffers.end() ? -1 : found->bytes.bound;
  };
  EXPECT_EQ(bytes(BufferKind::kWeights), 4 * shard);
  EXPECT_EQ(bytes(BufferKind::kPublished), 2 * shard);
  EXPECT_EQ(bytes(BufferKind::kGradients), 4 * shard);
  EXPECT_EQ(bytes(BufferKind::kOptimizerState), 8 * shard);
  EXPECT_EQ(bytes(BufferKind::kGathered), 2 * 4 * shard);
  EXPECT_EQ(bytes(BufferKind::kContribution), 2 * 4 * shard);
  EXPECT_EQ(bytes(BufferKind::kStaging), 2 * 4 * shard);
}

// The attention is bf16, the MLP fp32: each buffer has both, one behind the other, padded and cut by itself.
TEST(PrecisionTest, EachClassHasItsPlaceInEachBuffer) {
  Outline outline = SmallDecoder(1);
  UseBf16(outline);
  KeepLastPartsInMainType(outline);
  const UnitId layer = FindUnit(outline, "layers.0");
  const BuildOptions options = OptionsFor(outline, "zero3", 1, 4);
  const Program train = ProvenStage(outline, options).train;
  const int64_t narrow = options.units[layer].classes[0].shard_elements;
  const int64_t wide = options.units[layer].classes[1].shard_elements;
  const auto find = [&](BufferKind kind) {
    return *std::find_if(train.buffers.begin(), train.buffers.end(), [&](const Buffer& buffer) {
      return buffer.kind == kind && buffer.subject == layer;
    });
  };
  EXPECT_EQ(find(BufferKind::kWeights).bytes.bound, 4 * (narrow + wide));
  EXPECT_EQ(find(BufferKind::kPublished).bytes.bound, 2 * narrow + 4 * wide);
  EXPECT_EQ(find(BufferKind::kGradients).bytes.bound, 4 * (narrow + wide));
  EXPECT_EQ(find(BufferKind::kOptimizerState).bytes.bound, 8 * (narrow + wide));
  for (const BufferKind kind : {BufferKind::kGathered, BufferKind::kContribution}) {
    const Buffer buffer = find(kind);
    EXPECT_EQ(buffer.bytes.bound, 4 * (2 * narrow + 4 * wide));
    ASSERT_EQ(buffer.parts.size(), 2u);
    EXPECT_EQ(buffer.parts[0].begin, 0);
    EXPECT_EQ(buffer.parts[1].begin, 4 * 2 * narrow) << "behind what the four ranks have of the first class";
    EXPECT_EQ(buffer.parts[1].end - buffer.parts[1].begin, 4 * outline.units[layer].classes[1].elements);
  }
}

// A gather's wait for a reader may only keep it from running ahead, and a memory wait may free what nothing
// takes.
TEST(WaitsTest, EveryWaitForDataIsNeeded) {
  std::map<std::string, int> dropped;  // by program
  for (Outline outline : {SmallDecoder(), UnusualDecoder(), MoeDecoder()}) {
    UseBf16(outline);
    BuildOptions options = OptionsFor(outline, "zero3", 2, 4);
    options.hold = 1;
    const StagePrograms stage = ProvenStage(outline, options, Schedule::kOverlapped);
    for (const auto member : {&StagePrograms::train, &StagePrograms::validate}) {
      const Program& program = stage.*member;
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        for (size_t w = 0; w < instruction.waits.size(); ++w) {
          if (instruction.opcode == Opcode::kUnshard || instruction.waits[w].frees > 0) {
            continue;
          }
          StagePrograms changed = stage;
          std::vector<Wait>& waits = (changed.*member).instructions[i].waits;
          waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
          // What a memory wait happens to imply is not needed for memory's sake alone.
          if (std::any_of(waits.begin(), waits.end(), [](const Wait& wait) { return wait.frees > 0; })) {
            continue;
          }
          EXPECT_THAT(std::string(CheckStage(outline, options, changed).message()),
                      AnyOf(StartsWith("ordered: "), StartsWith("apart: ")))
              << program.name << ": " << ToText(instruction, outline) << " need not wait for "
              << ToText(program.instructions[instruction.waits[w].instruction], outline);
          ++dropped[program.name];
        }
      }
    }
  }
  EXPECT_GT(dropped["train"], 20);
  EXPECT_GT(dropped["validate"], 20);
}

}  // namespace
}  // namespace tandem::schedules
