#include "schedules_v1/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>

#include "schedules_v1/checker.h"
#include "schedules_v1/passes.h"
#include "schedules_v1/sequential.h"
#include "schedules_v1/text.h"
#include "tests/schedules/program_edits.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

using testing::HasSubstr;
using testing::Optional;

constexpr Task::Kind kTrain = Task::Kind::kTrain;
constexpr Task::Kind kValidate = Task::Kind::kValidate;
constexpr Task::Kind kSnapshot = Task::Kind::kSnapshot;

TEST(InterpreterTest, EveryOrderOfABuiltSequenceEndsAsTheMathematicsSays) {
  const unsigned seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  for (const int prefetch : {0, 1, 2}) {
    for (const int layers : {1, 2, 4}) {
      for (const Outline& outline :
           {TestOutline(layers, false), TestOutline(layers, true), TestMoeOutline(layers)}) {
        for (const int ranks : {1, 2, 3}) {
          const FsdpOptions options = TestOptions(outline, prefetch);
          Program train = BuildTrainProgram(outline, options, 3);
          Program validate = BuildValidateProgram(outline, options, 2);
          const Program snapshot = BuildSnapshotProgram();
          ShareSlots(train, validate);
          const Interpreter interpreter(outline, std::vector<std::vector<const Program*>>(
                                                     ranks, {&train, &snapshot, &validate, &train}));
          EXPECT_TRUE(interpreter.UnorderedPairs().empty());
          const std::vector<Ending> expected =
              Meaning(outline, {{kTrain, 3}, {kSnapshot}, {kValidate, 2}, {kTrain, 3}}, ranks);
          EXPECT_EQ(FindHarm(interpreter, expected, seed, 10), std::nullopt);
        }
      }
    }
  }
}

TEST(InterpreterTest, HalvesOfABackwardMakeOneStep) {
  Outline outline = TestOutline(2, /*tied=*/false);
  for (Node& node : outline.nodes) {
    if (node.kind == NodeKind::kMlp) {
      node.splits_backward = true;
      node.backward_input = node.backward;
      node.backward_input.parameter_gradients.clear();
      node.backward_weight = node.backward;
      node.backward_weight.gradient_writes.clear();
    }
  }
  Program program = BuildSequential(outline, 2);
  std::vector<Instruction> halved;
  for (const Instruction& instruction : program.instructions) {
    halved.push_back(instruction);
    if (instruction.opcode == Opcode::kBackward && outline.nodes[instruction.target].splits_backward) {
      halved.back().opcode = Opcode::kBackwardInput;
      halved.push_back(instruction);
      halved.back().opcode = Opcode::kBackwardWeight;
    }
  }
  program.instructions = halved;
  const FsdpOptions options = TestOptions(outline, 1);
  InsertFsdp(outline, options.prefetch, program);
  AssignStreams(outline, program);
  InsertReleases(outline, program);
  ChooseGradientModes(outline, program);
  AssignSlots(outline, options.unit_parameter_slot_bytes, options.unit_gradient_slot_bytes, program);
  InsertWaits(outline, program);
  ASSERT_EQ(CheckProgram(outline, program), absl::OkStatus());
  const Interpreter interpreter(outline, {{&program}});
  EXPECT_EQ(FindHarm(interpreter, Meaning(outline, {{kTrain, 2, /*split_backward=*/true}}, 1), 1, 5),
            std::nullopt);
  EXPECT_NE(FindHarm(interpreter, Meaning(outline, {{kTrain, 2, /*split_backward=*/false}}, 1), 1, 5),
            std::nullopt)
      << "halves are other arithmetic than the whole";
}

TEST(MeaningTest, DependsOnDataRanksAndEveryStep) {
  const Outline outline = TestOutline(1, /*tied=*/false);
  const auto meaning = [&](const std::vector<Task>& tasks, int ranks) {
    return Meaning(outline, tasks, ranks).front();
  };
  const Ending one = meaning({{kTrain, 2}}, 1);
  EXPECT_EQ(one, meaning({{kTrain, 2}}, 1));
  EXPECT_NE(one.weights, meaning({{kTrain, 3}}, 1).weights);
  EXPECT_NE(one.weights, meaning({{kTrain, 2}}, 2).weights);
  EXPECT_NE(one.weights, meaning({{kTrain, 2}, {kTrain, 2}}, 1).weights);
  EXPECT_EQ(one.weights, meaning({{kTrain, 2}, {kValidate, 2}}, 1).weights);
  EXPECT_EQ(meaning({{kTrain, 2}, {kValidate, 2}}, 1).reports.size(), 2u);
  EXPECT_EQ(meaning({{kTrain, 2}, {kSnapshot}}, 1).snapshots.size(), 1u);
  EXPECT_NE(meaning({{kTrain, 2}, {kSnapshot}}, 1).snapshots,
            meaning({{kSnapshot}, {kTrain, 2}}, 1).snapshots);
}

class HarmTest : public testing::Test {
 protected:
  int Find(const std::string& text, int from = 0) const {
    return FindInstruction(outline_, program_, text, from);
  }
  std::optional<std::string> Harm(const Program& program) const {
    const Interpreter interpreter(outline_, {{&program, &program}});
    return FindHarm(interpreter, Meaning(outline_, {{kTrain, 2}, {kTrain, 2}}, 1), 1, 8);
  }

  const Outline outline_ = TestOutline(3, /*tied=*/true);
  const Program program_ = BuildTrainProgram(outline_, TestOptions(outline_, 1), 2);
};

TEST_F(HarmTest, AnEarlyReleaseReadsWhatIsNotThere) {
  const int release = Find("release layers.1.mlp.saved mb 0");
  const int use = Find("backward layers.1.mlp mb 0");
  EXPECT_THAT(Harm(Moved(program_, release, use)), Optional(HasSubstr("not live when it is issued")));
}

TEST_F(HarmTest, AMissingWaitTearsWhatItShouldHaveOrdered) {
  Program program = program_;
  program.instructions[Find("forward layers.0.attention mb 0")].waits.clear();
  EXPECT_THAT(Harm(program), Optional(HasSubstr("at once")));
}

// The first read is right in issue order and in most others; only the gather held back shows it.
TEST_F(HarmTest, EveryMissingWaitIsFound) {
  int dropped = 0;
  for (size_t i = 0; i < program_.instructions.size(); ++i) {
    for (size_t k = 0; k < program_.instructions[i].waits.size(); ++k) {
      Program program = program_;
      std::vector<int>& waits = program.instructions[i].waits;
      waits.erase(waits.begin() + static_cast<int64_t>(k));
      EXPECT_NE(Harm(program), std::nullopt) << i;
      ++dropped;
    }
  }
  EXPECT_GT(dropped, 20);
}

TEST_F(HarmTest, AWrongSlotReadsAnotherUnit) {
  Program program = program_;
  SlotUse& slot = program.instructions[Find("forward layers.1.mlp mb 0")].slots.front();
  slot.index = 1 - slot.index;
  EXPECT_NE(Harm(program), std::nullopt);
}

TEST_F(HarmTest, AnOverwriteLosesAContribution) {
  Program program = program_;
  program.instructions[Find("reduce layers.1 mb 1")].add_parameter_gradients = {false};
  EXPECT_THAT(Harm(program), Optional(HasSubstr("ends in other hashes")));
}

TEST_F(HarmTest, AWaitForWhatIsNotIssuedYetCannotBeIssued) {
  Program program = program_;
  program.instructions[3].waits = {20};
  EXPECT_THAT(Harm(program), Optional(HasSubstr("not issued yet")));
}

TEST_F(HarmTest, RanksThatWaitForEachOtherStandStill) {
  const int reduce = Find("reduce head mb 0");
  const int gather = Find("unshard layers.1 mb 0", reduce);
  Program a = program_;
  a.instructions[gather].waits.push_back(reduce);
  Program b = Moved(program_, gather, reduce);
  b.instructions[reduce + 1].waits.push_back(reduce);
  const Interpreter interpreter(outline_, {{&a}, {&b}});
  const RunResult result = interpreter.RunInIssueOrder();
  EXPECT_EQ(result.kind, RunResult::Kind::kStandsStill) << result.what;
  EXPECT_THAT(result.what, HasSubstr("rank 0: train"));
  EXPECT_THAT(result.what, HasSubstr("rank 1: train"));
}

TEST_F(HarmTest, RanksThatGatherInAnotherOrderMeetTheWrongOne) {
  Program other = program_;
  std::swap(other.instructions[Find("unshard embedding mb 0")],
            other.instructions[Find("unshard layers.0 mb 0")]);
  const Interpreter interpreter(outline_, {{&program_}, {&other}});
  EXPECT_THAT(interpreter.RunInIssueOrder().what, HasSubstr("(unshard embedding mb 0) meets"));
}

}  // namespace
}  // namespace tandem::schedules_v1
