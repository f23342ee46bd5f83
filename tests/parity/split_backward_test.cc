// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "schedules/build/program_builder.h"
#include "schedules/check/check.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

using schedules::NodePass;
using schedules::Opcode;
using schedules::PassList;

// Wherever the weight half of a backward is, it changes no bit of a job.

struct Layout {
  std::string strategy;
  int ranks;
  std::string precision;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << layout.strategy << ", " << layout.ranks << " ranks, " << layout.precision;
}

// Weight halves behind all input halves of their microbatch.
PassList Delayed(const PassList& passes) {
  PassList delayed;
  PassList weights;
  for (const NodePass& pass : passes) {
    if (!weights.empty() && pass.microbatch != weights.front().microbatch) {
      delayed.insert(delayed.end(), weights.begin(), weights.end());
      weights.clear();
    }
    (pass.opcode == Opcode::kBackwardWeight ? weights : delayed).push_back(pass);
  }
  delayed.insert(delayed.end(), weights.begin(), weights.end());
  return delayed;
}

plan::JobPlan WithPasses(plan::JobPlan plan, const PassList& train) {
  auto stage =
      schedules::BuildStage(plan.outline, plan.options, train,
                            schedules::ForwardOnly(plan.outline, plan.options.num_validation_microbatches));
  EXPECT_TRUE(stage.ok()) << stage.status();
  plan.stage = *std::move(stage);
  const absl::Status status = schedules::CheckStage(plan.outline, plan.options, plan.stage);
  EXPECT_TRUE(status.ok()) << status;
  return plan;
}

class SplitBackwardTest : public testing::TestWithParam<Layout> {};

TEST_P(SplitBackwardTest, GivesTheSameBitsWhereverWeightHalvesAre) {
  JobOptions options{.strategy = GetParam().strategy,
                     .ranks = GetParam().ranks,
                     .microbatches_per_rank = 3,
                     .steps = 5,
                     .precision = GetParam().precision,
                     .validate_every_steps = 3};
  const plan::JobPlan sequential = MakeJob(options);
  const JobRun expected = RunJob(sequential);
  const plan::JobPlan delayed = WithPasses(
      sequential, Delayed(schedules::Sequential(sequential.outline, options.microbatches_per_rank)));
  const auto& instructions = delayed.stage.train.instructions;
  EXPECT_EQ(std::count_if(instructions.begin(), instructions.end(),
                          [](const auto& i) { return i.opcode == Opcode::kBackwardWeight; }),
            2 * options.layers * options.microbatches_per_rank);
  ExpectSameBits(expected, RunJob(delayed, {.fill_with_nan = true}));
  for (const bool delays : {false, true}) {
    SCOPED_TRACE(delays ? "overlapped, weight gradients delayed" : "overlapped");
    options.overlap = true;
    options.delay_weight_gradients = delays;
    ExpectSameBits(expected, RunJob(MakeJob(options), {.fill_with_nan = true}));
  }
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
    layouts.push_back({"zero1", 2, precision});
    layouts.push_back({"zero2", 4, precision});
    layouts.push_back({"zero3", 1, precision});
    layouts.push_back({"zero3", 3, precision});
  }
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, SplitBackwardTest, testing::ValuesIn(Layouts()), [](const auto& info) {
  return info.param.strategy + "_" + std::to_string(info.param.ranks) + "ranks_" +
         (info.param.precision.empty() ? "fp32" : "bf16");
});

}  // namespace
}  // namespace tandem::parity
