#include "schedules_v1/text.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

// To accept a new text, read the difference and copy the file that the failure names.
void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = std::string(GOLDEN_DIRECTORY) + "/" + name;
  std::ifstream file(path);
  std::stringstream expected;
  expected << file.rdbuf();
  if (expected.str() != text) {
    const std::string actual = testing::TempDir() + name;
    std::ofstream(actual) << text;
    ADD_FAILURE() << path << " differs from what is built now, which is in " << actual;
  }
}

TEST(TextTest, TrainStepOfThreeLayersWithTwoMicrobatches) {
  const Outline outline = TestOutline(3, /*tied=*/false);
  ExpectGolden("train_3_layers_2_microbatches.txt",
               ToText(BuildTrainProgram(outline, TestOptions(outline, 1), 2), outline));
}

TEST(TextTest, TiedTrainStepOfOneLayer) {
  const Outline outline = TestOutline(1, /*tied=*/true);
  ExpectGolden("train_tied.txt", ToText(BuildTrainProgram(outline, TestOptions(outline, 1), 1), outline));
}

TEST(TextTest, ValidationOfThreeLayers) {
  const Outline outline = TestOutline(3, /*tied=*/false);
  ExpectGolden("validate_3_layers.txt",
               ToText(BuildValidateProgram(outline, TestOptions(outline, 1), 2), outline));
}

TEST(TextTest, ShortFormNamesWhatAnInstructionDoes) {
  const Outline outline = TestOutline(3, /*tied=*/false);
  EXPECT_EQ(ToText(Instruction{.opcode = Opcode::kForward, .target = 1, .microbatch = 0}, outline),
            "forward layers.0.attention mb 0");
  EXPECT_EQ(ToText(Instruction{.opcode = Opcode::kRelease, .target = 1, .microbatch = 1, .of_gradient = true},
                   outline),
            "release d(hidden) mb 1");
  EXPECT_EQ(ToText(Instruction{.opcode = Opcode::kGradientNorm}, outline), "gradient-norm");
  EXPECT_EQ(ToText(Instruction{.opcode = Opcode::kUnshard, .target = 99, .microbatch = 0}, outline),
            "unshard unit 99? mb 0");
}

// Whatever a program holds is in its text, so a digest of the text is one of the program.
TEST(TextTest, EveryFieldOfAnInstructionShows) {
  const Outline outline = TestOutline(2, /*tied=*/false);
  const Program program = BuildTrainProgram(outline, TestOptions(outline, 1), 2);
  const std::string text = ToText(program, outline);
  const auto expect_other = [&](auto change) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      Program changed = program;
      if (change(changed.instructions[i])) {
        EXPECT_NE(ToText(changed, outline), text) << "instruction " << i;
      }
    }
  };
  expect_other([](Instruction& in) { return in.microbatch += 1, true; });
  expect_other([](Instruction& in) { return in.stream = StreamKind::kSend, true; });
  expect_other([](Instruction& in) {
    return in.communicator =
               in.communicator == Communicator::kNorm ? Communicator::kNone : Communicator::kNorm,
           true;
  });
  expect_other([](Instruction& in) { return in.waits.push_back(0), true; });
  expect_other([](Instruction& in) { return !in.slots.empty() && (in.slots.back().index += 5); });
  expect_other([](Instruction& in) { return !in.slots.empty() && (in.slots.back().size_class += 5); });
  expect_other([](Instruction& in) {
    return !in.add_parameter_gradients.empty() && (in.add_parameter_gradients.front().flip(), true);
  });
  expect_other([](Instruction& in) {
    return !in.add_value_gradients.empty() && (in.add_value_gradients.front().flip(), true);
  });
  expect_other([](Instruction& in) {
    return in.opcode == Opcode::kRelease && (in.of_gradient = !in.of_gradient, true);
  });
}

}  // namespace
}  // namespace tandem::schedules_v1
