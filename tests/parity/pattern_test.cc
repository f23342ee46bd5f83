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
  static const auto* const patterns = new std::vector<std::string>{
      "M*M*",   "M[*E]", "[*E][*E]", "[M*E]-",      "M-M-",       "EM*", "*ME",     "[*M]M", "G[*E]",
      "[G*E]-", "GMG-",  "M*/*E",    "[*E]M/ME/ME", "M-M-/MM/MM", "/*E", "[*M]/*-", "G*/GE", "[GE][*E]"};
  return *patterns;
}

JobOptions Patterned(const std::string& pattern) {
  JobOptions options = SparseJob();
  options.model_type = absl::StartsWith(pattern, "[GE]") ? "qwen3_next" : "hybrid";
  options.pattern = pattern;
  options.num_experts = absl::StrContains(pattern, 'E') ? 4 : 0;
  options.steps = 3;
  return options;
}

// By pattern, strategy, ranks that share experts, microbatches, and whether documents are packed.
std::vector<int> PatternSizes() { return {static_cast<int>(Patterns().size()), 2, 2, 3, 2}; }

void ExpectPromises(const Choice& choice) {
  JobOptions options = Patterned(Patterns()[choice[0]]);
  options.strategy = std::vector<std::string>{"zero2", "zero3"}[choice[1]];
  options.ranks = 2;
  options.expert_parallel = options.num_experts > 0 ? choice[2] + 1 : 1;
  options.microbatches_per_rank = std::vector<int>{1, 3, 4}[choice[3]];
  const bool packs = choice[4] == 1 && !absl::StrContains(options.pattern, '/');
  options.end_of_document = packs ? ' ' : -1;
  SCOPED_TRACE(testing::Message() << options.pattern << ", " << options.strategy << ", "
                                  << options.expert_parallel << " ranks share experts, "
                                  << options.microbatches_per_rank << " microbatches, documents "
                                  << (packs ? "packed" : "streamed"));
  const JobRun run = ExpectSameBitsOfSchedules(options);
  EXPECT_LT(run.steps.back().loss(), run.steps.front().loss());
  if (options.expert_parallel > 1) {
    options.fp64 = true;
    ExpectNumbersOfRanksWithEveryExpert(options);
  }
}

TEST(PatternTest, SampledPairsHaveTheSequentialSchedulesBits) {
  const std::vector<Choice> choices = ChoicesThatCoverAllPairs(PatternSizes(), kPatternSeed);
  std::printf("seed %d, %zu cases\n", static_cast<int>(kPatternSeed), choices.size());
  for (const Choice& choice : choices) {
    ExpectPromises(choice);
  }
}

// scripts/test.sh --full: every case of a pattern.
class PatternMatrixTest : public testing::TestWithParam<int> {};

TEST_P(PatternMatrixTest, DISABLED_EveryCaseHasTheSequentialSchedulesBits) {
  const std::vector<int> sizes = PatternSizes();
  for (const Choice& choice : AllChoices({sizes.begin() + 1, sizes.end()})) {
    Choice whole = {GetParam()};
    whole.insert(whole.end(), choice.begin(), choice.end());
    ExpectPromises(whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, PatternMatrixTest, testing::Range(0, static_cast<int>(Patterns().size())));

// Granite's.
TEST(PatternTest, MultipliersKeepSchedulesBitsAndRanksNumbers) {
  for (const int sharing : {1, 2}) {
    JobOptions options = Patterned("[ME][*E][ME]");
    options.model_type = "granitemoehybrid";
    options.strategy = "zero3";
    options.ranks = 2;
    options.expert_parallel = sharing;
    options.microbatches_per_rank = 3;
    const JobRun run = ExpectSameBitsOfSchedules(options);
    EXPECT_LT(run.steps.back().loss(), run.steps.front().loss());
    EXPECT_EQ(run.arena_bytes, std::vector<int64_t>(2, MakeJob(options).stage.arena_bytes));
    if (sharing > 1) {
      options.fp64 = true;
      ExpectNumbersOfRanksWithEveryExpert(options);
    }
  }
}

TEST(PatternTest, RanksAndAccumulationDoNotChangeTheBits) {
  for (const char* pattern : {"M*M-", "[M*-]M", "G[*G-]", "M*/M-/M-"}) {
    SCOPED_TRACE(pattern);
    ExpectSameBitsOnRanks(Patterned(pattern), {2, 3});
  }
}

TEST(PatternTest, AModelOfMixersAloneTrains) {
  JobOptions options = Patterned("MM");
  options.steps = 8;
  const JobRun run = ExpectSameBitsOfSchedules(options);
  EXPECT_LT(run.steps.back().loss(), run.steps.front().loss());
}

constexpr char kBf16[] = "compute: COMPUTE_TYPE_BF16";

// What decides how fast a mixer's states decay stays in fp32, in a class of its own.
TEST(PatternTest, InBf16RanksAndStrategiesKeepTheBits) {
  for (const char* pattern : {"M*M-", "[M*-]M", "G[*G-]"}) {
    JobOptions options = Patterned(pattern);
    options.precision = kBf16;
    EXPECT_EQ(MakeJob(options).outline.units.at(1).classes.size(), 2U);
    for (const char* strategy : {"zero2", "zero3"}) {
      SCOPED_TRACE(testing::Message() << pattern << ", " << strategy);
      options.strategy = strategy;
      ExpectSameBitsOnRanks(options, {2, 3, 4});
    }
  }
}

TEST(PatternTest, InBf16ExpertParallelSchedulesKeepTheBits) {
  JobOptions options = Patterned("[M*E]MG");
  options.precision = kBf16;
  options.ranks = 4;
  options.expert_parallel = 2;
  options.microbatches_per_rank = 3;
  options.end_of_document = ' ';
  const JobRun run = ExpectSameBitsOfSchedules(options);
  EXPECT_LT(run.steps.back().loss(), run.steps.front().loss());
}

TEST(PatternTest, InBf16ThreeRanksResumeOnOneBitwise) {
  JobOptions options = Patterned("[M*-]G");
  options.precision = kBf16;
  options.ranks = 3;
  options.microbatches_per_rank = 2;
  options.steps = 4;
  ExpectSameBitsAfter(2, options, {SharedAmong(1, options)});
}

TEST(PatternTest, InBf16LossesAreCloseToThoseInFp32) {
  JobOptions options = Patterned("[M-][*-]G");
  options.precision = kBf16;
  ExpectLossesNearFp32(options);
}

}  // namespace
}  // namespace tandem::parity
