// SPDX-License-Identifier: Apache-2.0
// What has gone wrong in schedules that interleave microbatches and delay weight gradients elsewhere
// (docs/regressions.md): each is refused here, by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedules/check/edited_stage.h"

namespace tandem::schedules {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two sparse layers; the forward of microbatch 1 over the backward of microbatch 0.
class OverlapCheckTest : public testing::Test {
 protected:
  OverlapCheckTest() {
    edited_.options.hold = 1;
    edited_.stage = BuildStage(edited_.outline, edited_.options, Schedule::kOverlapped).value();
  }

  Program& train() { return edited_.stage.train; }
  int At(const std::string& text) const { return edited_.IndexOf(edited_.stage.train, text); }

  // Brings the instruction at `from` to the place before what is at `to`, and rederives the waits.
  void Move(int from, int to) {
    const Instruction moved = train().instructions[from];
    EditedStage::Remove(train(), from);
    EditedStage::Insert(train(), to > from ? to - 1 : to, moved);
    WaitAnew(edited_, train());
  }

  EditedStage edited_{MoeDecoder(2)};
};

TEST_F(OverlapCheckTest, TheScheduleIsAccepted) { EXPECT_EQ(edited_.Check(), ""); }

TEST_F(OverlapCheckTest, WeightHalfBeforeInputHalfIsRefused) {
  Move(At("backward-weight layers.1.experts mb 0"), At("backward-input layers.1.experts mb 0"));
  EXPECT_THAT(edited_.Check(), AllOf(StartsWith("meant: train: "), HasSubstr("layers.1.experts")));
}

TEST_F(OverlapCheckTest, OmittedWeightHalfIsFound) {
  EditedStage::Remove(train(), At("backward-weight layers.1.experts mb 0"));
  WaitAnew(edited_, train());
  EXPECT_THAT(
      edited_.Check(),
      StartsWith("meant: train: the contribution of layers.1.experts of microbatch 0 is missing from the "
                 "gradient of layers.1.experts"));
}

TEST_F(OverlapCheckTest, ReductionBeforePendingWeightHalfIsRefused) {
  Move(At("reduce layers.1.experts mb 0"), At("backward-weight layers.1.experts mb 0"));
  EXPECT_THAT(edited_.Check(),
              AllOf(StartsWith("meant: train: "), HasSubstr("layers.1.experts of microbatch 0 is missing")));
}

TEST_F(OverlapCheckTest, AReductionOfEachHalfIsRefused) {
  const int reduce = At("reduce layers.1.experts mb 0");
  Instruction again = train().instructions[reduce];
  for (Operand& operand : again.operands) {
    if (train().buffers[operand.buffer].kind == BufferKind::kGradients) {
      operand.mode = Mode::kAdds;
    }
  }
  EditedStage::Insert(train(), reduce + 1, again);
  WaitAnew(edited_, train());
  EXPECT_THAT(edited_.Check(), AllOf(StartsWith("meant: train: "), HasSubstr("is twice in the gradient")));
}

// What the experts received is kept for their weight half: of one expert a rank no sorted copy is made of it.
TEST_F(OverlapCheckTest, MemoryIsKeptForADelayedWeightHalf) {
  const int weight = At("backward-weight layers.1.experts mb 0");
  const BufferId kept = edited_.BufferNamed(train(), "layers.1.arrived mb 0");
  // Whatever local buffer the other microbatch begins with between the halves.
  BufferId other = -1;
  for (int i = At("backward-input layers.1.experts mb 0") + 1; i < weight && other < 0; ++i) {
    for (const Operand& operand : train().instructions[i].operands) {
      const Buffer& buffer = train().buffers[operand.buffer];
      if (operand.mode == Mode::kWrites && buffer.kind == BufferKind::kAllToAll && buffer.microbatch == 1) {
        other = operand.buffer;
      }
    }
  }
  ASSERT_GE(other, 0);
  train().buffers[other].address = train().buffers[kept].address;
  EXPECT_THAT(edited_.Check(), AllOf(StartsWith("apart: train: "), HasSubstr("layers.1.arrived mb 0")));
}

// Probabilities go beside the tokens, and their gradient back: a router without it would never learn.
TEST_F(OverlapCheckTest, LostGradientOfASideValueIsRefused) {
  Instruction& finish = edited_.Find(train(), "backward-input layers.1.finish mb 0");
  std::erase_if(finish.operands, [&](const Operand& operand) {
    return train().buffers[operand.buffer].name == "d(layers.1.probabilities) mb 0";
  });
  WaitAnew(edited_, train());
  EXPECT_THAT(edited_.Check(), StartsWith("formed: train: "));
}

// Each microbatch has buffers of its own.
TEST_F(OverlapCheckTest, ReadingAnotherMicrobatchsTokensIsRefused) {
  Instruction& experts = edited_.Find(train(), "backward-weight layers.0.experts mb 0");
  for (Operand& operand : experts.operands) {
    if (train().buffers[operand.buffer].name == "layers.0.arrived mb 0") {
      operand.buffer = edited_.BufferNamed(train(), "layers.0.arrived mb 1");
    }
  }
  WaitAnew(edited_, train());
  EXPECT_THAT(edited_.Check(), AllOf(StartsWith("meant: train: "), HasSubstr("of microbatch 1 instead of "),
                                     HasSubstr("of microbatch 0")));
}

// A dispatch that the host must know sizes for.
TEST_F(OverlapCheckTest, DispatchBeforeItsSizesIsRefused) {
  EditedStage::Remove(train(), At("host-wait layers.1.sizes mb 1"));
  WaitAnew(edited_, train());
  EXPECT_THAT(edited_.Check(), AllOf(StartsWith("ordered: train: "),
                                     HasSubstr("(forward layers.1.dispatch mb 1) is issued by what "
                                               "layers.1.sizes mb 1 says")));
}

}  // namespace
}  // namespace tandem::schedules
