// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/program/sharding_strategy.h"
#include "tests/schedules/check/edited_stage.h"

namespace tandem::schedules {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(FormedTest, AWaitPointsToALowerPosition) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  const int i = edited.IndexOf(train, "forward head mb 0");
  train.instructions[i].waits.push_back({i});
  EXPECT_THAT(edited.Check(), StartsWith("formed: train: "));
  EXPECT_THAT(edited.Check(), HasSubstr("(forward head mb 0) waits for " + std::to_string(i) +
                                        ", which is not issued before it"));
}

TEST(FormedTest, OperandsAreThoseOfTheirPlace) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  std::vector<Operand>& operands = edited.Find(train, "reduce layers.0 mb 0").operands;
  std::swap(operands[0], operands[1]);
  EXPECT_THAT(edited.Check(), StartsWith("formed: "));
  EXPECT_THAT(edited.Check(),
              HasSubstr("has operand layers.0 staging mb 0 in place 0, where something else belongs"));
}

TEST(FormedTest, NoOperandIsMissing) {
  EditedStage edited(SmallDecoder(1));
  edited.Find(edited.stage.train, "forward layers.0.mlp mb 1").operands.pop_back();
  EXPECT_THAT(edited.Check(), HasSubstr("formed: train: "));
  EXPECT_THAT(edited.Check(), HasSubstr("(forward layers.0.mlp mb 1) has 4 operands instead of 5"));
}

TEST(FormedTest, AnOperandHasTheRoleOfItsPlace) {
  EditedStage edited(SmallDecoder(1));
  Instruction& reduce = edited.Find(edited.stage.train, "reduce layers.0 mb 0");
  ASSERT_EQ(reduce.operands[0].role, Role::kContribution);
  reduce.operands[0].role = Role::kSum;
  EXPECT_THAT(edited.Check(), HasSubstr("in place 0, where something else belongs"));
}

TEST(FormedTest, AnOutputIsOverwrittenAndNeverAddedTo) {
  EditedStage edited(SmallDecoder(1));
  edited.Find(edited.stage.train, "forward embedding mb 0").operands[1].mode = Mode::kAdds;
  EXPECT_THAT(edited.Check(), HasSubstr("adds to embedding.hidden mb 0, which it may not"));
}

TEST(FormedTest, ABufferHoldsWhatItIsFor) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  Buffer& hidden = train.buffers[edited.BufferNamed(train, "embedding.hidden mb 0")];
  hidden.bytes = {100, 100};
  EXPECT_THAT(edited.Check(), StartsWith("formed: "));
  EXPECT_THAT(edited.Check(), HasSubstr("needs 4096 bytes of embedding.hidden mb 0, which has 100"));
}

TEST(FormedTest, NodesFindParametersWhereTheLayoutPutsThem) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  train.buffers[edited.BufferNamed(train, "layers.0 parameters, gather 1")].parts[1].begin += 4;
  EXPECT_THAT(edited.Check(),
              HasSubstr("formed: train: buffer layers.0 parameters, gather 1 has other parts than "
                        "layers.0"));
}

TEST(FormedTest, ShardHasTheSizeOfItsPlacement) {
  for (const Strategy& strategy : Strategies()) {
    EditedStage edited(SmallDecoder(1), strategy.name);
    for (Program* program :
         {&edited.stage.train, &edited.stage.begin, &edited.stage.update, &edited.stage.validate}) {
      Buffer& weights = program->buffers[edited.BufferNamed(*program, "embedding weights")];
      weights.parts.clear();
      weights.bytes = {weights.bytes.bound - 4, weights.bytes.bound - 4};
    }
    EXPECT_THAT(edited.Check(), StartsWith("formed: ")) << strategy.name;
  }
}

// A buffer with parts is held to these instead.
TEST(FormedTest, BuffersWithoutPartsHoldWhatInstructionsNeed) {
  for (const Strategy& strategy : Strategies()) {
    const EditedStage whole(MoeDecoder(1), strategy.name);
    int shrunk = 0;
    for (size_t b = 0; b < whole.stage.train.buffers.size(); ++b) {
      const Buffer& buffer = whole.stage.train.buffers[b];
      const bool moments = buffer.kind == BufferKind::kOptimizerState;
      if ((!buffer.parts.empty() && !moments) || buffer.bytes.bound == 0) {
        continue;
      }
      EditedStage edited = whole;
      for (Program* program :
           {&edited.stage.train, &edited.stage.begin, &edited.stage.update, &edited.stage.validate}) {
        if (program == &edited.stage.train || buffer.life != Life::kLocal) {
          program->buffers[b].parts.clear();
          program->buffers[b].bytes = {buffer.bytes.bound - 1, buffer.bytes.bound - 1};
        }
      }
      ++shrunk;
      EXPECT_THAT(edited.Check(), StartsWith("formed: ")) << strategy.name << ", " << buffer.name;
    }
    EXPECT_GT(shrunk, 50) << strategy.name;
  }
}

TEST(FormedTest, ABufferLiesWithinTheArena) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  Buffer& hidden = train.buffers[edited.BufferNamed(train, "embedding.hidden mb 0")];
  hidden.address = edited.stage.arena_bytes;
  EXPECT_THAT(edited.Check(), HasSubstr("formed: train: buffer embedding.hidden mb 0 lies at"));
  hidden.address = 0;  // among the persistent ones
  EXPECT_THAT(edited.Check(), HasSubstr("formed: train: buffer embedding.hidden mb 0 lies at"));
}

TEST(FormedTest, PersistentBuffersAreTheSameInEveryProgram) {
  EditedStage edited(SmallDecoder(1));
  edited.stage.update.buffers[1].address += 256;
  EXPECT_THAT(edited.Check(), HasSubstr("is not as in train, though it is persistent"));
}

TEST(FormedTest, NothingOfAFormerRunIsChanged) {
  EditedStage edited(SmallDecoder(1));
  edited.Find(edited.stage.train, "gradient-norm").operands.back().former = true;
  EXPECT_THAT(edited.Check(), StartsWith("formed: "));
  EXPECT_THAT(edited.Check(), HasSubstr("of a former run only rings are there, and only to read"));
}

TEST(FormedTest, AnOptimizerStepReadsTheFormerRunsOutcome) {
  EditedStage edited(SmallDecoder(1));
  edited.Find(edited.stage.train, "optimizer embedding").operands[1].former = false;
  EXPECT_THAT(edited.Check(), StartsWith("formed: train: "));
  EXPECT_THAT(edited.Check(), HasSubstr("(optimizer embedding) reads outcome, which it may not"));
}

TEST(FormedTest, AStreamThatCopiesTouchesOnlyRings) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  edited.Find(train, "forward embedding mb 0").stream = edited.Find(train, "load tokens mb 0").stream;
  EXPECT_THAT(edited.Check(), HasSubstr("on stream host-to-device, which may touch only rings"));
}

TEST(FormedTest, CommunicatorHasOneStreamInAllPrograms) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  // All gathers of one program on another stream.
  const StreamId reduce = edited.Find(train, "gradient-norm").stream;
  for (Instruction& in : edited.stage.validate.instructions) {
    if (in.opcode == Opcode::kUnshard) {
      in.stream = reduce;
    }
  }
  EXPECT_THAT(edited.Check(), StartsWith("formed: validate: "));
  EXPECT_THAT(edited.Check(), HasSubstr("uses communicator dp_cp_ag gather on stream reduce, and train: "));
}

}  // namespace
}  // namespace tandem::schedules
