#include "schedules_v1/cross_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules_v1/text.h"
#include "tests/schedules_v1/program_edits.h"
#include "tests/schedules_v1/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CrossRankTest : public testing::Test {
 protected:
  int Find(const std::string& text) const { return FindInstruction(outline_, program_, text); }
  std::string Message(const Program& a, const Program& b) const {
    return std::string(CheckRanks(InOneGroup(outline_, {&a, &b})).message());
  }

  const Outline outline_ = TestOutline(2, /*tied=*/false);
  const Program program_ = BuildTrainProgram(outline_, TestOptions(outline_, 1), 1);
};

TEST_F(CrossRankTest, TheSameProgramMeetsItself) {
  EXPECT_EQ(CheckRanks(InOneGroup(outline_, {&program_, &program_})), absl::OkStatus());
}

TEST_F(CrossRankTest, AnotherOrderOnOneCommunicatorIsRefused) {
  Program other = program_;
  std::swap(other.instructions[Find("unshard embedding mb 0")],
            other.instructions[Find("unshard layers.0 mb 0")]);
  EXPECT_THAT(Message(program_, other), AllOf(HasSubstr("communicator gather"), HasSubstr("rank a"),
                                              HasSubstr("(unshard embedding mb 0) meets"),
                                              HasSubstr("rank b"), HasSubstr("(unshard layers.0 mb 0)")));
}

TEST_F(CrossRankTest, OneCollectiveMoreIsRefused) {
  const Program three = BuildTrainProgram(outline_, TestOptions(outline_, 1), 3);
  const Program two = BuildTrainProgram(outline_, TestOptions(outline_, 1), 2);
  EXPECT_FALSE(CheckRanks(InOneGroup(outline_, {&three, &two})).ok());
  Program longer = program_;
  longer.instructions.push_back(longer.instructions[Find("gradient-norm")]);
  EXPECT_THAT(Message(program_, longer), AllOf(HasSubstr("communicator norm"), HasSubstr("meets nothing")));
}

// Rank a gathers layer 1 for the backward only after the head's reduction, rank b reduces only after that
// gather: each communicator alone is in order, and yet both would wait for ever.
TEST_F(CrossRankTest, ACircleOverTwoCommunicatorsIsRefused) {
  const int reduce = Find("reduce head mb 0");
  const int gather = Find("unshard layers.0 mb 0");
  Program a = program_;
  Program b = program_;
  // The last gather of layers.0 comes after the reduction in issue order.
  int last_gather = gather;
  for (int i = reduce; i < static_cast<int>(a.instructions.size()); ++i) {
    if (a.instructions[i].opcode == Opcode::kUnshard) {
      last_gather = i;
      break;
    }
  }
  ASSERT_GT(last_gather, reduce);
  a.instructions[last_gather].waits.push_back(reduce);
  b.instructions[reduce].waits.push_back(last_gather);
  EXPECT_THAT(Message(a, b), AllOf(HasSubstr("wait for each other for ever"), HasSubstr("rank a: train"),
                                   HasSubstr("rank b: train"), HasSubstr("(reduce head mb 0) waits to meet"),
                                   HasSubstr("waits for")));
}

// Two stages with a group each: nobody meets.
TEST_F(CrossRankTest, RanksOfDifferentGroupsDoNotMeet) {
  const Program longer = BuildTrainProgram(outline_, TestOptions(outline_, 1), 3);
  std::vector<RankProgram> ranks = InOneGroup(outline_, {&program_, &longer, &program_});
  EXPECT_FALSE(CheckRanks(ranks).ok());
  ranks[1].groups.fill(1);
  EXPECT_EQ(CheckRanks(ranks), absl::OkStatus());
  ranks[1].groups[static_cast<int>(Communicator::kNorm)] = 0;  // one collective a step, in both
  EXPECT_EQ(CheckRanks(ranks), absl::OkStatus());
}

TEST_F(CrossRankTest, ThreeRanksAreHeldUpByOne) {
  Program other = program_;
  other.instructions[Find("reduce head mb 0")].target = 0;
  std::vector<RankProgram> ranks = InOneGroup(outline_, {&program_, &program_, &other});
  ranks[2].name = "stage 2";
  EXPECT_THAT(std::string(CheckRanks(ranks).message()),
              AllOf(HasSubstr("communicator reduce"), HasSubstr("rank a"), HasSubstr("meets stage 2")));
}

}  // namespace
}  // namespace tandem::schedules_v1
