// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Shapes, ranks and distances at their limits: always the bits of one rank.

struct Corner {
  std::string name;
  JobOptions options;
  int microbatches = 1;  // of all ranks
  std::vector<int> ranks;
};

void PrintTo(const Corner& corner, std::ostream* out) { *out << corner.name; }

class CornerTest : public testing::TestWithParam<std::tuple<Corner, bool>> {};  // fp64

TEST_P(CornerTest, HasTheBitsOfOneRank) {
  const Corner& corner = std::get<0>(GetParam());
  JobOptions options = corner.options;
  options.fp64 = std::get<1>(GetParam());
  const JobRun one = ExpectSameBitsOnRanks(options, corner.ranks, corner.microbatches);
  ASSERT_EQ(static_cast<int64_t>(one.steps.size()), options.steps);
  for (const v1::StepReport& step : one.steps) {
    EXPECT_EQ(step.nonfinite(), 0) << step.step();
    EXPECT_GT(step.loss(), 0) << step.step();
  }
}

std::vector<Corner> Corners() {
  // Nothing is a multiple of a vector, a cache line or a granule.
  const JobOptions odd{.steps = 3,
                       .layers = 1,
                       .hidden = 10,
                       .inner = 7,
                       .heads = 1,
                       .kv_heads = 1,
                       .sequence_length = 5,
                       .micro_batch_size = 1,
                       .warmup_steps = 0,
                       .prefetch = 2,
                       .validate_every_steps = 1};
  std::vector<Corner> corners;
  const auto add = [&corners](std::string name, JobOptions options, int microbatches,
                              std::vector<int> ranks) {
    corners.push_back({std::move(name), std::move(options), microbatches, std::move(ranks)});
  };
  add("OddSizesAndThePrefetchOfAllThereIs", odd, 10, {2, 5, 10});
  JobOptions tied = odd;
  tied.tied = true;
  add("OddSizesTied", tied, 6, {3, 6});
  JobOptions token = odd;
  token.sequence_length = 1;
  token.layers = 3;
  add("SequencesOfOneToken", token, 4, {4});
  JobOptions grouped = odd;
  grouped.layers = 2;
  grouped.hidden = 42;
  grouped.inner = 33;
  grouped.heads = 7;
  grouped.kv_heads = 1;
  grouped.sequence_length = 37;
  grouped.micro_batch_size = 3;
  grouped.prefetch = 0;
  add("SevenHeadsOfOneKeyAndAnOddLength", grouped, 4, {2, 4});
  JobOptions clipped = grouped;
  clipped.clip = 1e-3;
  add("ClippedInEveryStep", clipped, 3, {3});
  JobOptions unclipped = grouped;
  unclipped.clip = 0;
  unclipped.norms = false;
  add("WithoutClippingAndNorms", unclipped, 2, {2});
  return corners;
}

INSTANTIATE_TEST_SUITE_P(Jobs, CornerTest, testing::Combine(testing::ValuesIn(Corners()), testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + (std::get<1>(info.param) ? "Fp64" : "Fp32");
                         });

}  // namespace
}  // namespace tandem::parity
