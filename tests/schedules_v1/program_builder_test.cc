#include "schedules_v1/program_builder.h"

#include <gtest/gtest.h>

#include "schedules_v1/checker.h"
#include "schedules_v1/counts.h"
#include "schedules_v1/cross_rank.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

struct Shape {
  int prefetch;
  int accumulation;
  int layers;
  bool tied;
};

class EveryShapeTest : public testing::TestWithParam<Shape> {
 protected:
  const Outline outline_ = TestOutline(GetParam().layers, GetParam().tied);
  const FsdpOptions options_ = TestOptions(outline_, GetParam().prefetch);
  const Program train_ = BuildTrainProgram(outline_, options_, GetParam().accumulation);
  const Program validate_ = BuildValidateProgram(outline_, options_, GetParam().accumulation);
};

TEST_P(EveryShapeTest, IsAccepted) {
  EXPECT_EQ(CheckProgram(outline_, train_), absl::OkStatus());
  EXPECT_EQ(CheckProgram(outline_, validate_), absl::OkStatus());
  EXPECT_EQ(CheckSequence(outline_, {&train_, &train_, &validate_, &train_}), absl::OkStatus());
  EXPECT_EQ(CheckRanks(InOneGroup(outline_, {&train_, &train_})), absl::OkStatus());
}

TEST_P(EveryShapeTest, GathersLayersTwiceAndTheHeadOnceAMicrobatch) {
  const int m = GetParam().accumulation;
  const int n = GetParam().layers;
  const std::vector<UnitCounts> counts = CountCollectives(outline_, train_);
  EXPECT_EQ(counts[0], (UnitCounts{.gathers = GetParam().tied ? 2 * m : m, .reductions = m}));
  for (int layer = 0; layer < n; ++layer) {
    EXPECT_EQ(counts[1 + layer], (UnitCounts{.gathers = 2 * m, .reductions = m}));
  }
  EXPECT_EQ(counts[1 + n], (UnitCounts{.gathers = m, .reductions = m}));
}

// The tied head of one microbatch and the embedding of the next are adjacent uses of one unit.
TEST_P(EveryShapeTest, ValidationGathersEveryUnitOnceAMicrobatchAndReducesNothing) {
  const int m = GetParam().accumulation;
  const std::vector<UnitCounts> counts = CountCollectives(outline_, validate_);
  EXPECT_EQ(counts.front(), (UnitCounts{.gathers = GetParam().tied ? m + 1 : m, .reductions = 0}));
  for (size_t unit = 1; unit < counts.size(); ++unit) {
    EXPECT_EQ(counts[unit], (UnitCounts{.gathers = m, .reductions = 0}));
  }
}

TEST_P(EveryShapeTest, NeedsOneParameterSlotMoreThanThePrefetchDistance) {
  const int layer_class = train_.parameter_slots[1];
  EXPECT_LE(layer_class, GetParam().prefetch + 1);
  EXPECT_EQ(layer_class, std::min(GetParam().prefetch + 1, GetParam().layers));
  EXPECT_EQ(train_.parameter_slots[0], 1);
  EXPECT_EQ(train_.parameter_slots[2], 1);
  EXPECT_LE(validate_.parameter_slots[1], layer_class);
}

TEST_P(EveryShapeTest, NeedsTwoGradientSlotsSoThatReductionsOverlap) {
  EXPECT_EQ(train_.gradient_slots, (std::vector<int>{1, std::min(2, GetParam().layers), 1}));
  EXPECT_EQ(validate_.gradient_slots, (std::vector<int>{0, 0, 0}));
}

std::vector<Shape> AllShapes() {
  std::vector<Shape> shapes;
  for (const int prefetch : {0, 1, 2}) {
    for (const int accumulation : {1, 2, 3, 4}) {
      for (const int layers : {1, 2, 3, 4}) {
        for (const bool tied : {false, true}) {
          shapes.push_back({prefetch, accumulation, layers, tied});
        }
      }
    }
  }
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(All, EveryShapeTest, testing::ValuesIn(AllShapes()), [](const auto& info) {
  const Shape& shape = info.param;
  return "Prefetch" + std::to_string(shape.prefetch) + "Accumulation" + std::to_string(shape.accumulation) +
         "Layers" + std::to_string(shape.layers) + (shape.tied ? "Tied" : "Untied");
});

TEST(ProgramBuilderTest, TwoMicrobatchesGatherLayersFourTimesEmbeddingAndHeadTwice) {
  const Outline outline = TestOutline(3, /*tied=*/false);
  const Program program = BuildTrainProgram(outline, TestOptions(outline, 1), 2);
  EXPECT_EQ(CountCollectives(outline, program),
            (std::vector<UnitCounts>{{2, 2}, {4, 2}, {4, 2}, {4, 2}, {2, 2}}));
}

TEST(ProgramBuilderTest, UnitsOfEqualSizeShareAClass) {
  const Outline outline = TestOutline(2, /*tied=*/false);
  FsdpOptions options = TestOptions(outline, 1);
  options.unit_parameter_slot_bytes = {4096, 2048, 2048, 4096};
  const Program program = BuildTrainProgram(outline, options, 1);
  EXPECT_EQ(program.parameter_slot_bytes, (std::vector<int64_t>{4096, 2048}));
  EXPECT_EQ(CheckProgram(outline, program), absl::OkStatus());
}

TEST(ProgramBuilderTest, SharedSlotsAreTheLargerCountOfEachClass) {
  Program a{.parameter_slot_bytes = {1, 2},
            .parameter_slots = {1, 3},
            .gradient_slot_bytes = {1},
            .gradient_slots = {2}};
  Program b{.parameter_slot_bytes = {1, 2},
            .parameter_slots = {2, 1},
            .gradient_slot_bytes = {1},
            .gradient_slots = {0}};
  ShareSlots(a, b);
  EXPECT_EQ(a.parameter_slots, (std::vector<int>{2, 3}));
  EXPECT_EQ(b.parameter_slots, (std::vector<int>{2, 3}));
  EXPECT_EQ(b.gradient_slots, (std::vector<int>{2}));
}

TEST(ProgramBuilderTest, TheSameArgumentsGiveTheSameProgram) {
  const Outline outline = TestOutline(3, /*tied=*/true);
  EXPECT_EQ(BuildTrainProgram(outline, TestOptions(outline, 1), 2).instructions,
            BuildTrainProgram(outline, TestOptions(outline, 1), 2).instructions);
}

// The prefetch distance is how far a gather is issued ahead, in uses.
TEST(ProgramBuilderTest, PrefetchIssuesGathersAheadOfTheUnitInUse) {
  const Outline outline = TestOutline(4, /*tied=*/false);
  for (const int prefetch : {0, 1, 2}) {
    const Program program = BuildTrainProgram(outline, TestOptions(outline, prefetch), 1);
    int gathered = 0;  // before the embedding, the first user, runs
    for (const Instruction& instruction : program.instructions) {
      if (instruction.opcode == Opcode::kForward) {
        break;
      }
      gathered += instruction.opcode == Opcode::kUnshard;
    }
    EXPECT_EQ(gathered, prefetch + 1);
  }
}

}  // namespace
}  // namespace tandem::schedules_v1
