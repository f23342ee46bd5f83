// What the checker says of the contributions to a value's gradient (value_lives.h, fold_order.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "schedules_v1/checker.h"
#include "schedules_v1/interpreter.h"
#include "schedules_v1/passes.h"
#include "schedules_v1/sequential.h"
#include "schedules_v1/text.h"
#include "tests/schedules/program_edits.h"

namespace tandem::schedules_v1 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A value x with two readers, "side" and "b"; side has no parameters. A backward of a node that has none is
// what no unit's gradient misses.
Outline TwoReaders() {
  Outline outline;
  outline.units.push_back({"unit", {"part"}, 64});
  outline.values = {{.name = "tokens", .bytes = {8, 8}},
                    {.name = "x", .bytes = {8, 8}, .gradient_bytes = {8, 8}},
                    {.name = "loss", .bytes = {8, 8}}};
  outline.batch = 0;
  outline.loss = 2;
  outline.nodes.push_back(
      {.name = "a",
       .forward = {.reads = {0}, .writes = {1}, .parameters = {{0, 0}}},
       .backward = {.gradient_reads = {1}, .parameters = {{0, 0}}, .parameter_gradients = {{0, 0}}}});
  outline.nodes.push_back({.name = "side", .forward = {.reads = {1}}, .backward = {.gradient_writes = {1}}});
  outline.nodes.push_back(
      {.name = "b", .forward = {.reads = {1}, .writes = {2}}, .backward = {.gradient_writes = {1}}});
  for (Node& node : outline.nodes) {
    node.splits_backward = true;
    node.backward_input = node.backward;
    node.backward_input.parameter_gradients.clear();
    node.backward_weight = {.parameter_gradients = node.backward.parameter_gradients};
  }
  return outline;
}

class ValueLivesTest : public testing::Test {
 protected:
  // A step whose builder did `change`, with every pass of the builder after that.
  Program Build(const std::function<void(std::vector<Instruction>&)>& change) const {
    Program program = BuildSequential(outline_, 1);
    change(program.instructions);
    InsertFsdp(outline_, /*prefetch=*/0, program);
    AssignStreams(outline_, program);
    InsertReleases(outline_, program);
    ChooseGradientModes(outline_, program);
    AssignSlots(outline_, {256}, {256}, program);
    InsertWaits(outline_, program);
    return program;
  }

  std::vector<Instruction>::iterator Find(std::vector<Instruction>& in, const std::string& text) const {
    return std::find_if(in.begin(), in.end(), [&](const Instruction& instruction) {
      return ToText(instruction, outline_) == text;
    });
  }

  std::string Message(const Program& program) const {
    return std::string(CheckProgram(outline_, program).message());
  }

  // The interpreter's opinion.
  bool IsHarmful(const Program& program) const {
    const Interpreter interpreter(outline_, {{&program}});
    return FindHarm(interpreter, Meaning(outline_, {{Task::Kind::kTrain, 1}}, 1), 1, 4).has_value();
  }

  Outline outline_ = TwoReaders();
};

TEST_F(ValueLivesTest, WhatTheBuilderMakesIsAcceptedAndTheSecondReaderAdds) {
  Program program = Build([](auto&) {});
  EXPECT_EQ(CheckProgram(outline_, program), absl::OkStatus());
  EXPECT_FALSE(IsHarmful(program));
  EXPECT_TRUE(Find(program.instructions, "backward side mb 0")->add_value_gradients.front());
}

TEST_F(ValueLivesTest, ContributionsInAnotherOrderThanTheNodesAreRefused) {
  const Program program = Build([this](auto& instructions) {
    std::iter_swap(Find(instructions, "backward side mb 0"), Find(instructions, "backward b mb 0"));
  });
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(backward b mb 0) adds to the gradient of x after"),
                    HasSubstr("(backward side mb 0), but contributions are added in the reverse order")));
}

TEST_F(ValueLivesTest, AGradientThatIsReadBeforeItsLastContributionNamesBoth) {
  const Program program = Build([this](auto& instructions) {
    std::iter_swap(Find(instructions, "backward side mb 0"), Find(instructions, "backward a mb 0"));
  });
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(
      Message(program),
      AllOf(HasSubstr("(backward a mb 0) reads the gradient of x with 1 of 2 contributions, before train"),
            HasSubstr("(backward side mb 0)")));
}

TEST_F(ValueLivesTest, AContributionThatNeverComesIsMissed) {
  const Program program =
      Build([this](auto& instructions) { instructions.erase(Find(instructions, "backward side mb 0")); });
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(Message(program),
              testing::EndsWith("(backward a mb 0) reads the gradient of x with 1 of 2 contributions"));
}

TEST_F(ValueLivesTest, ALaterContributionDoesNotOverwriteNorComeAfterTheRelease) {
  Program program = Build([](auto&) {});
  std::vector<Instruction>& in = program.instructions;
  const auto side = Find(in, "backward side mb 0");
  side->add_value_gradients = {false};
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(Message(program), AllOf(HasSubstr("(backward side mb 0) overwrites the gradient of x of train"),
                                      HasSubstr("(backward b mb 0)")));
  side->add_value_gradients = {true};
  const auto place = [&](const std::string& text) { return static_cast<int>(Find(in, text) - in.begin()); };
  program = Moved(program, place("release d(x) mb 0"), place("backward side mb 0"));
  EXPECT_TRUE(IsHarmful(program));
  EXPECT_THAT(Message(program), AllOf(HasSubstr("(backward side mb 0) writes the gradient of x after train"),
                                      HasSubstr("(release d(x) mb 0)")));
}

TEST_F(ValueLivesTest, ANodeContributesOnce) {
  for (const std::string node : {"side", "b"}) {
    const std::string text = "backward " + node + " mb 0";
    const Program program = Build([&](auto& instructions) {
      const auto found = Find(instructions, text);
      instructions.insert(found, Instruction(*found));
    });
    EXPECT_TRUE(IsHarmful(program));
    EXPECT_THAT(Message(program), AllOf(HasSubstr("(" + text + ") contributes to the gradient of x a second"),
                                        testing::EndsWith("(" + text + ")")));
  }
}

TEST_F(ValueLivesTest, ANodeRunsItsBackwardWholeOrInHalves) {
  const auto with = [this](std::vector<Opcode> opcodes) {
    return Build([&](auto& instructions) {
      auto found = Find(instructions, "backward side mb 0");
      const Instruction whole = *found;
      found = instructions.erase(found);
      for (const Opcode opcode : opcodes) {
        found = instructions.insert(found, whole);
        (found++)->opcode = opcode;
      }
    });
  };
  EXPECT_EQ(CheckProgram(outline_, with({Opcode::kBackwardInput, Opcode::kBackwardWeight})),
            absl::OkStatus());
  EXPECT_THAT(Message(with({Opcode::kBackwardInput, Opcode::kBackward})),
              HasSubstr("(backward side mb 0) contributes to the gradient of x a second time, after"));
  EXPECT_THAT(Message(with({Opcode::kBackward, Opcode::kBackwardInput})),
              HasSubstr("(backward-input side mb 0) contributes to the gradient of x a second time, after"));
}

// Halves that do not add up to the whole: x gets three contributions of two nodes.
TEST_F(ValueLivesTest, HalvesContributeWhatTheWholeDoes) {
  outline_.nodes[1].backward_weight.gradient_writes = {1};
  const Program program = Build([&](auto& instructions) {
    const auto found = Find(instructions, "backward side mb 0");
    found->opcode = Opcode::kBackwardInput;
    instructions.insert(found + 1, *found)->opcode = Opcode::kBackwardWeight;
  });
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(backward-weight side mb 0) writes the gradient of x after the "
                              "last contribution of"),
                    HasSubstr("(backward-input side mb 0)")));
}

}  // namespace
}  // namespace tandem::schedules_v1
