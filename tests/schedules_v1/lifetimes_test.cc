// One rule of lifetimes.h, value_lives.h and unit_leases.h after the other: each is the only one that its
// program breaks first, and its message names both instructions.
#include "schedules_v1/lifetimes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules_v1/checker.h"
#include "schedules_v1/interpreter.h"
#include "schedules_v1/program_builder.h"
#include "schedules_v1/text.h"
#include "tests/schedules/program_edits.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LifetimesTest : public testing::Test {
 protected:
  LifetimesTest() : program_(BuildTrainProgram(outline_, OneClass(), 2)) {}

  // Every unit in one size class, so that each may take the slot of each.
  FsdpOptions OneClass() const {
    const size_t units = outline_.units.size();
    return {.prefetch = 1,
            .unit_parameter_slot_bytes = std::vector<int64_t>(units, 4096),
            .unit_gradient_slot_bytes = std::vector<int64_t>(units, 4096)};
  }

  // The first instruction after `after` that reads so.
  int Find(const std::string& text, int after = -1) const {
    return FindInstruction(outline_, program_, text, after + 1);
  }

  std::string Message(const Program& program) const {
    return std::string(CheckProgram(outline_, program).message());
  }

  bool IsHarmful(const Program& program) const {
    const Interpreter interpreter(outline_, {{&program}});
    return FindHarm(interpreter, Meaning(outline_, {{Task::Kind::kTrain, 2}}, 1), 1, 4).has_value();
  }

  const Outline outline_ = TestOutline(3, /*tied=*/true);
  const Program program_;
};

TEST_F(LifetimesTest, TheProgramThatTheOthersChangeIsAccepted) {
  EXPECT_EQ(CheckProgram(outline_, program_), absl::OkStatus());
  EXPECT_FALSE(IsHarmful(program_));
}

// The head opens the embedding's gradient, which stays open while those of the layers come and go.
TEST_F(LifetimesTest, AGradientSlotHasOneUnitAtATime) {
  const int head = Find("backward head mb 0");
  const int reduce = Find("reduce embedding mb 0");
  const auto slot_in = [](Instruction& instruction, UnitId unit) -> SlotUse* {
    for (SlotUse& slot : instruction.slots) {
      if (slot.role == SlotRole::kGradients && slot.unit == unit) {
        return &slot;
      }
    }
    return nullptr;
  };
  Program program = program_;
  const SlotUse of_layer = *slot_in(program.instructions[Find("backward layers.2.mlp mb 0")], /*unit=*/3);
  for (int i = head; i <= reduce; ++i) {
    if (SlotUse* slot = slot_in(program.instructions[i], /*unit=*/0)) {
      ASSERT_NE(slot->index, of_layer.index);
      slot->index = of_layer.index;
    }
  }
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(backward layers.2.mlp mb 0) collects gradients in " + ToText(of_layer) +
                              ", which is still in use since train " + std::to_string(head)),
                    HasSubstr("(backward head mb 0)")));
}

TEST_F(LifetimesTest, AValueHasOneProducer) {
  const int forward = Find("forward layers.1.mlp mb 0");
  EXPECT_THAT(Message(Doubled(program_, forward, forward + 1)),
              AllOf(HasSubstr(std::to_string(forward + 1) +
                              " (forward layers.1.mlp mb 0) writes "
                              "layers.1.mlp.hidden a second time, after train " +
                              std::to_string(forward)),
                    testing::EndsWith("[hygiene: second write]")));
}

TEST_F(LifetimesTest, AUnitIsGatheredOnceAtATime) {
  const int gather = Find("unshard layers.0 mb 0");
  Program program = Doubled(program_, gather, gather + 1);
  program.instructions[gather + 1].slots.front().index += 2;
  program.parameter_slots.front() += 2;
  EXPECT_THAT(Message(program), AllOf(HasSubstr("(unshard layers.0 mb 0) gathers a unit that is still "
                                                "gathered by"),
                                      HasSubstr("train " + std::to_string(gather) + " (unshard layers.0")));
}

// Found by a random mutant: the race is there, but nobody reads what it spoils.
TEST_F(LifetimesTest, ARaceOfAGatherThatNothingUsesIsHygiene) {
  const int last = Find("reshard layers.0 mb 1", Find("reshard layers.0 mb 1"));
  Program program = Doubled(program_, Find("unshard layers.0 mb 1"), last + 1);
  program.instructions[last + 1].slots = program_.instructions[last].slots;
  program.instructions[last + 1].waits = {Find("backward layers.0.attention mb 1")};
  EXPECT_FALSE(IsHarmful(program));
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr(std::to_string(last + 1) + " (unshard layers.0 mb 1) and train"),
                    HasSubstr("(reshard layers.0 mb 1) both touch parameter slot p0."),
                    testing::EndsWith("[hygiene: unused gather]")));
}

TEST_F(LifetimesTest, AReshardFreesTheUnitThatItsSlotHolds) {
  Program program = program_;
  Instruction& reshard = program.instructions[Find("reshard layers.0 mb 0")];
  reshard.target = 2;
  reshard.slots.front().unit = 2;
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(reshard layers.1 mb 0) frees slot p0."), HasSubstr("but it holds what"),
                    HasSubstr("(unshard layers.0 mb 0) gathered [hygiene: label]")));
}

TEST_F(LifetimesTest, NothingContributesAfterTheReduction) {
  const int reduce = Find("reduce layers.1 mb 0");
  const int backward = Find("backward layers.1.mlp mb 0");
  EXPECT_THAT(Message(Doubled(program_, backward, reduce + 1)), HasSubstr("reads"));
  // The same contribution, from what is still there.
  Outline outline = outline_;
  outline.nodes.push_back({.name = "late", .backward = {.parameter_gradients = {{2, 0}}}});
  Program program = program_;
  Instruction late = program.instructions[backward];
  late.target = static_cast<int>(outline.nodes.size()) - 1;
  late.slots = {late.slots.back()};
  late.add_value_gradients.clear();
  late.add_parameter_gradients = {false};
  late.waits.clear();
  outline.nodes.back().backward.parameter_gradients.front().unit = late.slots.front().unit;
  Program with = Doubled(program, backward, reduce + 1);
  with.instructions[reduce + 1] = late;
  // One contribution more is expected, and the one that comes is too late either way.
  EXPECT_THAT(
      std::string(CheckProgram(outline, with).message()),
      AllOf(HasSubstr("(reduce layers.1 mb 0) reduces with 1 of 2 contributions to layers.1.attention"),
            HasSubstr("before train"), HasSubstr("(backward late mb 0)")));
  outline.nodes.back().backward.parameter_gradients.clear();
  outline.nodes.back().backward_weight.parameter_gradients = {{late.slots.front().unit, 0}};
  with.instructions[reduce + 1].opcode = Opcode::kBackwardWeight;
  EXPECT_THAT(std::string(CheckProgram(outline, with).message()),
              AllOf(HasSubstr("(backward-weight late mb 0) contributes to the gradient of layers.1 after"),
                    HasSubstr("(reduce layers.1 mb 0)")));
}

TEST_F(LifetimesTest, AMicrobatchContributesAfterTheReductionOfTheFormer) {
  const int reduce = Find("reduce layers.2 mb 0");
  const int next = Find("backward layers.2.mlp mb 1");
  Program program = program_;
  // A slot that nothing else needs meanwhile.
  const int own = program.gradient_slots.front()++;
  for (const int i :
       {Find("backward layers.2.mlp mb 0"), Find("backward layers.2.attention mb 0"), reduce, next}) {
    program.instructions[i].slots.back().index = own;
  }
  program = Moved(program, reduce, next + 1);
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(Message(program), AllOf(HasSubstr("(backward layers.2.mlp mb 1) contributes to the gradient of "
                                                "layers.2 before the reduction of"),
                                      HasSubstr("(backward layers.2.mlp mb 0)")));
}

TEST_F(LifetimesTest, AGradientThatIsNeverReducedIsRefusedWithoutAnyNorm) {
  Program program = Without(program_, Find("reduce embedding mb 1"));
  std::erase_if(program.instructions, [](const Instruction& instruction) {
    return instruction.opcode == Opcode::kGradientNorm || instruction.opcode == Opcode::kOptimizerStep;
  });
  for (Instruction& instruction : program.instructions) {
    if (instruction.opcode == Opcode::kReport) {
      instruction.waits.clear();  // it waited for the norm
    }
  }
  EXPECT_THAT(Message(program),
              HasSubstr("(backward head mb 1) contributes to a gradient that is never reduced"));
}

TEST_F(LifetimesTest, TheNormIsTakenOnceAfterAllReductionsAndBeforeTheReport) {
  const int norm = Find("gradient-norm");
  Program program = Doubled(program_, norm, norm + 1);
  EXPECT_THAT(Message(program), HasSubstr(std::to_string(norm + 1) + " (gradient-norm) comes after train " +
                                          std::to_string(norm) + " (gradient-norm); a step has one norm"));
  program = Moved(program_, norm, Find("reduce embedding mb 1"));
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(gradient-norm) comes before the reduction of embedding mb 1"),
                    HasSubstr("(backward head mb 1)")));
  program = Moved(program_, norm, Find("optimizer embedding") + 1);
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(Message(program), testing::EndsWith("(optimizer embedding) comes before the gradient norm"));
  program = Moved(program_, Find("report"), norm);
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(gradient-norm) comes after"), HasSubstr("(report), which reads its result")));
}

TEST_F(LifetimesTest, WeightsDoNotChangeWhileTheyAreGathered) {
  const int last = Find("reshard layers.0 mb 1", Find("reshard layers.0 mb 1"));
  const int step = Find("optimizer layers.0");
  EXPECT_THAT(Message(Moved(program_, last, step + 1)),
              AllOf(HasSubstr("(optimizer layers.0) changes weights that are gathered by"),
                    HasSubstr("(unshard layers.0 mb 1) [hygiene: never closed]")));
}

TEST_F(LifetimesTest, AStepAndASnapshotAreProgramsOfTheirOwn) {
  Program program = program_;
  for (Instruction& instruction : program.instructions) {
    for (int& wait : instruction.waits) {
      ++wait;
    }
  }
  program.instructions.insert(program.instructions.begin(), BuildSnapshotProgram().instructions.front());
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(optimizer embedding) is in one program with train 0 (snapshot)"),
                    HasSubstr("a snapshot is a program of its own")));
}

TEST_F(LifetimesTest, OnlyTheBatchIsLoaded) {
  Program program = program_;
  program.instructions[Find("load tokens mb 0")].target = outline_.loss;
  EXPECT_THAT(Message(program), HasSubstr("(load loss mb 0) loads what is not the batch"));
}

TEST_F(LifetimesTest, AProgramWhoseShapeIsWrongIsRefusedBeforeAnythingIsSizedAfterIt) {
  Program program = program_;
  program.num_microbatches = -1;
  EXPECT_EQ(Message(program), "train: num_microbatches is -1");
  program = program_;
  program.gradient_slot_bytes.pop_back();
  EXPECT_EQ(Message(program), "train: every size class needs a size and a count");
  Outline outline = outline_;
  outline.loss = 1000;
  EXPECT_EQ(CheckProgram(outline, program_).message(), "the outline names no batch or no loss value");
}

}  // namespace
}  // namespace tandem::schedules_v1
