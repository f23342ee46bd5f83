// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/pairs.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Layers by a pattern keep the promises of all others: every schedule of a layout has the same bits, and
// ranks that share experts have the numbers of ranks that have them all.

constexpr uint64_t kPatternSeed = 20261129;

const std::vector<std::string>& Patterns() {
  static const auto* const patterns =
      new std::vector<std::string>{"M*M*", "M[*E]", "[*E][*E]", "[M*E]-", "M-M-", "EM*", "*ME", "[*M]M"};
  return *patterns;
}

JobOptions Patterned(const std::string& pattern) {
  JobOptions options = SparseJob();
  options.model_type = "hybrid";
  options.pattern = pattern;
  options.num_experts = absl::StrContains(pattern, 'E') ? 4 : 0;
  options.steps = 3;
  return options;
}

TEST(PatternTest, ASampleThatCoversAllPairsHasTheBitsOfTheSequentialSchedule) {
  const std::vector<std::string> strategies = {"zero2", "zero3"};
  const std::vector<int> sharing = {1, 2};
  const std::vector<int> microbatches = {1, 3, 4};
  const std::vector<Choice> choices =
      ChoicesThatCoverAllPairs({static_cast<int>(Patterns().size()), 2, 2, 3, 2}, kPatternSeed);
  std::printf("seed %d, %zu cases\n", static_cast<int>(kPatternSeed), choices.size());
  for (const Choice& choice : choices) {
    JobOptions options = Patterned(Patterns()[choice[0]]);
    options.strategy = strategies[choice[1]];
    options.ranks = 2;
    options.expert_parallel = options.num_experts > 0 ? sharing[choice[2]] : 1;
    options.microbatches_per_rank = microbatches[choice[3]];
    options.end_of_document = choice[4] == 0 ? -1 : ' ';
    SCOPED_TRACE(testing::Message() << options.pattern << ", " << options.strategy << ", "
                                    << options.expert_parallel << " ranks share experts, "
                                    << options.microbatches_per_rank << " microbatches, documents "
                                    << (choice[4] == 0 ? "streamed" : "packed"));
    const JobRun run = ExpectSameBitsOfSchedules(options);
    EXPECT_LT(run.steps.back().loss(), run.steps.front().loss());
    if (options.expert_parallel > 1) {
      options.fp64 = true;
      ExpectNumbersOfRanksWithEveryExpert(options);
    }
  }
}

TEST(PatternTest, RanksAndAccumulationDoNotChangeTheBits) {
  for (const char* pattern : {"M*M-", "[M*-]M"}) {
    SCOPED_TRACE(pattern);
    JobOptions options = Patterned(pattern);
    const JobRun one = RunOn(1, options);
    for (const int ranks : {2, 3}) {
      ExpectSameBits(one, RunOn(ranks, options));
    }
  }
}

TEST(PatternTest, AModelOfMixersAloneTrains) {
  JobOptions options = Patterned("MM");
  options.steps = 8;
  const JobRun run = ExpectSameBitsOfSchedules(options);
  EXPECT_LT(run.steps.back().loss(), run.steps.front().loss());
}

}  // namespace
}  // namespace tandem::parity
