// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "plan/build_stage.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "tests/parity/scale_kind.h"

namespace tandem::parity {
namespace {

using schedules::Schedule;

// Layers that are other lists of node kinds than those of a job.

constexpr int kMicrobatches = 4;

plan::JobPlan JobOf(int ranks, Schedule schedule, const std::vector<const model::NodeKind*>& layer,
                    const JobOptions& base = {}) {
  JobOptions options = base;
  options.ranks = ranks;
  options.microbatches_per_rank = kMicrobatches / ranks;
  options.steps = 6;
  options.fp64 = true;
  plan::JobPlan plan = MakeJob(options);
  plan.model.layers.assign(options.layers, layer);
  plan.units = model::DecoderUnits(plan.model);
  plan.layouts = plan::WholeLayouts(plan);
  plan::BuildOutline(plan);
  plan.schedule = schedule;
  plan::BuildPrograms(plan);
  return plan;
}

JobRun RunKinds(const plan::JobPlan& plan) {
  return RunJob(
      plan,
      {.fill_with_nan = true, .make_nodes = [&plan](const ops::Operations& ops) {
         return model::DecoderNodes(plan.model, plan.batch, plan.precision, ops, {{&kScale, MakeScaleNode}});
       }});
}

const std::vector<const model::NodeKind*> kThree = {&model::kAttention, &model::kMlp, &kScale};

TEST(LayerKindsTest, ThreeKindsInALayerTrainAsOnOneRank) {
  const JobRun one = RunKinds(JobOf(1, Schedule::kSequential, kThree));
  EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
  for (const int ranks : {1, 2, 4}) {
    for (const Schedule schedule :
         {Schedule::kSequential, Schedule::kOverlapped, Schedule::kOverlappedUndelayed}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, schedule " << static_cast<int>(schedule));
      ExpectSameBits(one, RunKinds(JobOf(ranks, schedule, kThree)));
    }
  }
}

TEST(LayerKindsTest, AThirdKindIsRecomputedLikeTheOthers) {
  const JobRun kept = RunKinds(JobOf(1, Schedule::kSequential, kThree));
  for (const Schedule schedule : {Schedule::kSequential, Schedule::kOverlapped}) {
    ExpectSameBits(kept, RunKinds(JobOf(2, schedule, kThree, {.recompute = "layer"})));
  }
}

TEST(LayerKindsTest, AThirdKindsParametersAreTrained) {
  const JobRun three = RunKinds(JobOf(1, Schedule::kSequential, kThree));
  const JobRun two = RunKinds(JobOf(1, Schedule::kSequential, {&model::kAttention, &model::kMlp}));
  ASSERT_EQ(three.steps.size(), two.steps.size());
  EXPECT_EQ(three.steps.front().loss(), two.steps.front().loss()) << "scales begin as ones";
  EXPECT_NE(three.steps.back().loss(), two.steps.back().loss());
}

TEST(LayerKindsTest, TheJobsOwnLayersAreAListToo) {
  const std::vector<const model::NodeKind*> own = {&model::kAttention, &model::kMlp};
  JobOptions options{.microbatches_per_rank = kMicrobatches, .steps = 6, .fp64 = true};
  ExpectSameBits(RunJob(MakeJob(options)), RunKinds(JobOf(1, Schedule::kSequential, own)));
}

}  // namespace
}  // namespace tandem::parity
