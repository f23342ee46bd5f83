#include "schedules/interpreter.h"

#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "schedules/text.h"
#include "tests/schedules/test_outline.h"

namespace tandem::schedules {
namespace {

TEST(InterpreterTest, EveryOrderOfABuiltProgramEndsAsTheMathematicsSays) {
  const unsigned seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  for (const int prefetch : {0, 1, 2}) {
    for (const int layers : {1, 2, 4}) {
      for (const bool tied : {false, true}) {
        for (const int ranks : {1, 2}) {
          const Outline outline = TestOutline(layers, tied);
          const FsdpOptions options = TestOptions(outline, prefetch);
          Program train = BuildTrainProgram(outline, options, 3);
          Program validate = BuildValidateProgram(outline, options, 2);
          ShareSlots(train, validate);
          const Interpreter interpreter(
              outline, std::vector<std::vector<const Program*>>(ranks, {&train, &validate, &train}));
          EXPECT_TRUE(interpreter.UnorderedPairs().empty());
          const std::vector<Ending> expected = Meaning(
              outline, {{Task::Kind::kTrain, 3}, {Task::Kind::kValidate, 2}, {Task::Kind::kTrain, 3}}, ranks);
          EXPECT_EQ(FindHarm(interpreter, expected, seed, 10), std::nullopt);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::schedules
