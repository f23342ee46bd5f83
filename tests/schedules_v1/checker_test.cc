#include "schedules_v1/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>

#include "schedules_v1/access.h"
#include "schedules_v1/hygiene.h"
#include "schedules_v1/passes.h"
#include "schedules_v1/sequential.h"
#include "schedules_v1/text.h"
#include "tests/schedules_v1/program_edits.h"
#include "tests/schedules_v1/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Case {
  Outline outline;
  Program program;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int prefetch : {0, 1, 2}) {
    for (const int layers : {1, 3}) {
      for (const bool tied : {false, true}) {
        const Outline outline = TestOutline(layers, tied);
        const FsdpOptions options = TestOptions(outline, prefetch);
        cases.push_back({outline, BuildTrainProgram(outline, options, 2)});
        cases.push_back({outline, BuildValidateProgram(outline, options, 2)});
      }
    }
  }
  return cases;
}

void ExpectRefused(const Case& original, const Program& changed, const std::string& change) {
  EXPECT_FALSE(CheckProgram(original.outline, changed).ok()) << change << "\n"
                                                             << ToText(changed, original.outline);
}

// Calls visit for every instruction of every case.
void ForEach(const std::function<void(const Case&, int, const Instruction&, const std::string&)>& visit) {
  for (const Case& c : Cases()) {
    for (int i = 0; i < static_cast<int>(c.program.instructions.size()); ++i) {
      visit(c, i, c.program.instructions[i],
            c.program.name + " " + std::to_string(i) + " (" + ToText(c.program.instructions[i], c.outline) +
                ")");
    }
  }
}

TEST(CheckerMutationTest, EveryWaitIsNeeded) {
  int dropped = 0;
  ForEach([&](const Case& c, int i, const Instruction& instruction, const std::string& name) {
    for (size_t wait = 0; wait < instruction.waits.size(); ++wait) {
      Program changed = c.program;
      std::vector<int>& waits = changed.instructions[i].waits;
      waits.erase(waits.begin() + static_cast<int64_t>(wait));
      ExpectRefused(c, changed, name + " without one wait");
      ++dropped;
    }
  });
  EXPECT_GT(dropped, 200);
}

TEST(CheckerMutationTest, EveryInstructionIsNeeded) {
  ForEach([&](const Case& c, int i, const Instruction&, const std::string& name) {
    ExpectRefused(c, Without(c.program, i), "without " + name);
  });
}

TEST(CheckerMutationTest, NoInstructionMayComeTwice) {
  ForEach([&](const Case& c, int i, const Instruction&, const std::string& name) {
    ExpectRefused(c, Doubled(c.program, i, i + 1), "twice " + name);
  });
}

TEST(CheckerMutationTest, OverwriteAndAddAreNotInterchangeable) {
  ForEach([&](const Case& c, int i, const Instruction& instruction, const std::string& name) {
    for (size_t k = 0; k < instruction.add_parameter_gradients.size(); ++k) {
      Program changed = c.program;
      changed.instructions[i].add_parameter_gradients[k].flip();
      ExpectRefused(c, changed, name + ": parameter gradient flipped");
    }
    for (size_t k = 0; k < instruction.add_value_gradients.size(); ++k) {
      Program changed = c.program;
      changed.instructions[i].add_value_gradients[k].flip();
      ExpectRefused(c, changed, name + ": value gradient flipped");
    }
  });
}

TEST(CheckerMutationTest, EverySlotIsTheRightOne) {
  ForEach([&](const Case& c, int i, const Instruction& instruction, const std::string& name) {
    for (size_t k = 0; k < instruction.slots.size(); ++k) {
      for (const auto& change : std::initializer_list<std::function<void(SlotUse&)>>{
               [](SlotUse& slot) { slot.index += 1; }, [](SlotUse& slot) { slot.index -= 1; },
               [](SlotUse& slot) { slot.size_class = (slot.size_class + 1) % 3; },
               [](SlotUse& slot) { slot.unit += 1; },
               [](SlotUse& slot) {
                 slot.role =
                     slot.role == SlotRole::kParameters ? SlotRole::kGradients : SlotRole::kParameters;
               }}) {
        Program changed = c.program;
        change(changed.instructions[i].slots[k]);
        ExpectRefused(c, changed, name + " with another slot");
      }
    }
  });
}

TEST(CheckerMutationTest, EveryInstructionIsOnTheRightStream) {
  ForEach([&](const Case& c, int i, const Instruction&, const std::string& name) {
    Program changed = c.program;
    changed.instructions[i].stream = StreamKind::kSend;
    ExpectRefused(c, changed, name + " on another stream");
  });
}

TEST(CheckerMutationTest, ReleasesAndReshardsCannotComeBeforeTheLastUse) {
  ForEach([&](const Case& c, int i, const Instruction& instruction, const std::string& name) {
    if (instruction.opcode != Opcode::kRelease && instruction.opcode != Opcode::kReshard) {
      return;
    }
    int last_use = i;  // the node or report before which it must not come
    while (!TargetsNode(c.program.instructions[last_use].opcode) &&
           c.program.instructions[last_use].opcode != Opcode::kReport) {
      --last_use;
    }
    ExpectRefused(c, Moved(c.program, i, last_use), name + " before its last use");
  });
}

TEST(CheckerMutationTest, ReductionsCannotComeBeforeTheLastContribution) {
  ForEach([&](const Case& c, int i, const Instruction& instruction, const std::string& name) {
    if (instruction.opcode == Opcode::kReduceGradients) {
      int last = i;
      while (c.program.instructions[last].opcode != Opcode::kBackward) {
        --last;
      }
      ExpectRefused(c, Moved(c.program, i, last), name + " before its last contribution");
    }
  });
}

// All passes, as the builders run them.
void RunPasses(const Outline& outline, const FsdpOptions& options, Program& program) {
  InsertFsdp(outline, options.prefetch, program);
  AssignStreams(outline, program);
  InsertReleases(outline, program);
  ChooseGradientModes(outline, program);
  AssignSlots(outline, options.unit_parameter_slot_bytes, options.unit_gradient_slot_bytes, program);
  InsertWaits(outline, program);
}

class MessageTest : public testing::Test {
 protected:
  int Find(const std::string& text, int from = 0) const {
    return FindInstruction(outline_, program_, text, from);
  }
  std::string Message(const Program& program) const {
    return std::string(CheckProgram(outline_, program).message());
  }

  const Outline outline_ = TestOutline(3, /*tied=*/true);
  const Program program_ = BuildTrainProgram(outline_, TestOptions(outline_, 1), 2);
};

TEST_F(MessageTest, ARaceNamesBothInstructionsAndWhatTheyTouch) {
  Program program = program_;
  program.instructions[Find("forward layers.0.attention mb 0")].waits.clear();
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(forward layers.0.attention mb 0)"), HasSubstr("(unshard layers.0 mb 0)"),
                    HasSubstr("parameter slot p1.0")));
}

TEST_F(MessageTest, UseAfterReleaseNamesTheRelease) {
  const int release = Find("release layers.0.attention.saved mb 0");
  const Program program = Moved(program_, release, Find("backward layers.0.attention mb 0"));
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(backward layers.0.attention mb 0) reads layers.0.attention.saved"),
                    HasSubstr("after"), HasSubstr("(release layers.0.attention.saved mb 0)")));
}

TEST_F(MessageTest, AMissingReleaseNamesWriterAndLastUser) {
  EXPECT_THAT(Message(Without(program_, Find("release layers.0.mlp.saved mb 1"))),
              AllOf(HasSubstr("(forward layers.0.mlp mb 1) writes layers.0.mlp.saved"),
                    HasSubstr("never released"), HasSubstr("(backward layers.0.mlp mb 1)")));
}

TEST_F(MessageTest, AnEarlyReductionNamesTheContributionThatItMisses) {
  const int reduce = Find("reduce embedding mb 0");
  const Program program = Moved(program_, reduce, Find("backward embedding mb 0"));
  EXPECT_THAT(Message(program), AllOf(HasSubstr("(reduce embedding mb 0) reduces with 1 of 2 contributions"),
                                      HasSubstr("before"), HasSubstr("(backward embedding mb 0)")));
}

TEST_F(MessageTest, ASecondReductionNamesTheFirst) {
  const int reduce = Find("reduce layers.1 mb 0");
  EXPECT_THAT(Message(Doubled(program_, reduce, reduce + 1)),
              AllOf(HasSubstr("reduces a second time, after"), HasSubstr("(reduce layers.1 mb 0)")));
}

TEST_F(MessageTest, GatheringIntoASlotInUseNamesItsHolder) {
  EXPECT_THAT(Message(Without(program_, Find("reshard layers.0 mb 0"))),
              AllOf(HasSubstr("gathers into p1.0, which is still in use since"),
                    HasSubstr("(unshard layers.0 mb 0)")));
}

TEST_F(MessageTest, ACommunicatorOnTwoStreamsNamesBothUsers) {
  Program program = program_;
  const int second = Find("unshard layers.0 mb 0");
  program.instructions[second].stream = StreamKind::kReduce;
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(unshard layers.0 mb 0) uses communicator gather on stream reduce"),
                    HasSubstr("(unshard embedding mb 0) on stream gather")));
}

TEST_F(MessageTest, WaitsPointBackAndToOtherStreams) {
  Program program = program_;
  const int forward = Find("forward embedding mb 0");
  program.instructions[forward].waits = {Find("reduce head mb 0")};
  EXPECT_THAT(Message(program), AllOf(HasSubstr("no earlier instruction"), HasSubstr("(reduce head mb 0)")));
  program.instructions[forward].waits = {forward};
  EXPECT_THAT(Message(program), HasSubstr("no earlier instruction"));
  program.instructions[forward].waits = {-1};
  EXPECT_THAT(Message(program), HasSubstr("no earlier instruction"));
  program.instructions[forward].waits = {Find("load tokens mb 0")};
  EXPECT_THAT(Message(program), HasSubstr("which it knows to be done without that [hygiene: known wait]"));
}

TEST_F(MessageTest, OperandsOutOfRangeAreRefusedNotFollowed) {
  for (const auto& change : std::initializer_list<std::function<void(Instruction&)>>{
           [](Instruction& in) { in.target = 1000; }, [](Instruction& in) { in.target = -1; },
           [](Instruction& in) { in.microbatch = 2; }, [](Instruction& in) { in.microbatch = -1; },
           [](Instruction& in) { in.slots.clear(); },
           [](Instruction& in) { in.slots.push_back(in.slots.front()); },
           [](Instruction& in) { in.slots.front().index = 99; },
           [](Instruction& in) { in.slots.front().size_class = -1; },
           [](Instruction& in) { in.add_parameter_gradients.clear(); },
           [](Instruction& in) { in.add_value_gradients.push_back(true); },
           [](Instruction& in) { in.of_gradient = true; },
           [](Instruction& in) { in.communicator = Communicator::kNorm; }}) {
    Program program = program_;
    change(program.instructions[Find("backward layers.1.mlp mb 1")]);
    EXPECT_FALSE(CheckProgram(outline_, program).ok());
  }
  Program program = program_;
  program.num_microbatches = 0;
  EXPECT_FALSE(CheckProgram(outline_, program).ok());
}

TEST_F(MessageTest, GatheringAfterTheUpdateIsRefused) {
  // The last gather of layers.0 moves behind its optimizer step.
  Program program = program_;
  Instruction gather = program.instructions[Find("unshard layers.0 mb 1")];
  Instruction reshard = gather;
  reshard.opcode = Opcode::kReshard;
  reshard.stream = StreamKind::kCompute;
  reshard.communicator = Communicator::kNone;
  gather.waits = {Find("optimizer head")};
  reshard.waits = {static_cast<int>(program.instructions.size())};
  program.instructions.push_back(gather);
  program.instructions.push_back(reshard);
  EXPECT_THAT(Message(program), HasSubstr("weights that belong to the next step"));
}

// Random mutants found that this was accepted.
TEST_F(MessageTest, AReportBeforeTheLastUpdateNamesBoth) {
  const int report = Find("report");
  const int step = Find("optimizer head");
  ASSERT_EQ(report, step + 1);
  EXPECT_THAT(Message(Moved(program_, report, step)), AllOf(HasSubstr("(optimizer head) comes after"),
                                                            HasSubstr("(report), which reads its result")));
}

TEST_F(MessageTest, AReductionBeforeThatOfAnEarlierMicrobatchNamesBoth) {
  // All of microbatch 1 before all of microbatch 0, and every pass of the builder after that.
  Program program = BuildSequential(outline_, 2);
  for (Instruction& instruction : program.instructions) {
    instruction.microbatch = instruction.microbatch < 0 ? -1 : 1 - instruction.microbatch;
  }
  RunPasses(outline_, TestOptions(outline_, 1), program);
  EXPECT_THAT(Message(program),
              AllOf(HasSubstr("(reduce head mb 0) comes after"), HasSubstr("(reduce head mb 1)"),
                    HasSubstr("added in the order of the microbatches")));
}

TEST_F(MessageTest, AWaitThatTeachesNothingNamesBoth) {
  Program program = program_;
  const int backward = Find("backward layers.0.attention mb 0");
  const int gather = Find("unshard embedding mb 0");
  program.instructions[backward].waits = {gather};
  EXPECT_THAT(Message(program), AllOf(HasSubstr("(backward layers.0.attention mb 0) waits for"),
                                      HasSubstr("(unshard embedding mb 0), which it knows to be done"),
                                      HasSubstr("[hygiene: known wait]")));
}

TEST_F(MessageTest, HygieneHasItsRuleInTheRefusalAndOthersHaveNone) {
  const int release = Find("release layers.0.mlp.saved mb 1");
  EXPECT_EQ(HygieneRule(CheckProgram(outline_, Without(program_, release))), hygiene::kNeverClosed);
  Program program = program_;
  program.instructions[release].stream = StreamKind::kGather;
  EXPECT_EQ(HygieneRule(CheckProgram(outline_, program)), hygiene::kReleaseStream);
  program = program_;
  program.instructions[Find("gradient-norm")].communicator = Communicator::kReduce;
  EXPECT_EQ(HygieneRule(CheckProgram(outline_, program)), hygiene::kCommunicator);
  program = program_;
  program.instructions[Find("reduce head mb 0")].microbatch = 1;
  EXPECT_EQ(HygieneRule(CheckProgram(outline_, program)), hygiene::kLabel);
  program = program_;
  program.instructions[Find("forward layers.0.mlp mb 0")].waits.clear();
  program.instructions[Find("forward layers.0.attention mb 0")].waits.clear();
  EXPECT_EQ(HygieneRule(CheckProgram(outline_, program)), "");
  EXPECT_EQ(HygieneRule(absl::OkStatus()), "");
}

TEST(CheckerSequenceTest, ProgramsThatShareNoClassesAreStillSeparate) {
  const Outline outline = TestOutline(2, /*tied=*/false);
  const Program train = BuildTrainProgram(outline, TestOptions(outline, 2), 3);
  const Program validate = BuildValidateProgram(outline, TestOptions(outline, 0), 5);
  EXPECT_EQ(CheckSequence(outline, {&train, &validate, &train}), absl::OkStatus());
  EXPECT_EQ(CheckSequence(outline, {&validate, &train, &validate, &validate}), absl::OkStatus());
}

}  // namespace
}  // namespace tandem::schedules_v1
