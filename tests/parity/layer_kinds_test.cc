// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/mul.h>
#include <gtest/gtest.h>

#include "model/bound_arrays.h"
#include "model/declared_node.h"
#include "model/node_kinds.h"
#include "ops/tensors.h"
#include "plan/build_stage.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

using schedules::Schedule;

// Layers that are other lists of node kinds than those of a job.

// hidden = x ⊙ scale: a kind of node that model/ does not know, and its code.
model::NodeDeclaration DeclareScale(const model::DecoderShapes& s) {
  return {.place = schedules::Place::kAfter,
          .inputs = {model::HiddenState("x", s)},
          .outputs = {{.tensor = model::HiddenState("hidden", s).tensor, .gradient = true}},
          .parts = {{.name = "scale", .parameters = {model::NormOver("scale", s.hidden)}}},
          .forward = {.reads = {"x"}, .writes = {"hidden"}, .parameters = true},
          .backward_input = {.reads = {"x"},
                             .gradient_reads = {"hidden"},
                             .gradient_writes = {"x"},
                             .parameters = true,
                             .parameter_gradients = true},
          .recomputes = true};
}

constexpr model::ParameterName kScaleNames[] = {{"scale", "scale.weight"}};
constexpr model::NodeKind kScale = {.name = "scale", .declare = DeclareScale, .names = kScaleNames};

class ScaleNode final : public model::DeclaredNode {
 public:
  explicit ScaleNode(const model::NodeContext& context)
      : DeclaredNode(context, DeclareScale(context.shapes)) {}

 private:
  at::Tensor Row(const ops::Array& vector) const { return ops::TensorOf(vector.Reshaped(1, s_.hidden)); }

  model::BoundPass BindForward(model::BoundArrays& in) const override {
    return [x = ops::TensorOf(in.Value("x")), hidden = ops::TensorOf(in.Value("hidden")),
            scale = Row(in.Parameter("scale"))]() mutable { at::mul_out(hidden, x, scale); };
  }

  model::BoundPass BindBackward(model::BoundArrays& in) const override {
    return [x = ops::TensorOf(in.Value("x")), grad_hidden = ops::TensorOf(in.Gradient("hidden")),
            grad_x = ops::TensorOf(in.OverwrittenGradient("x")), scale = Row(in.Parameter("scale")),
            grad_scale = Row(in.ParameterGradient("scale")),
            add = in.AddsToParameterGradient("scale")]() mutable {
      at::mul_out(grad_x, grad_hidden, scale);
      const at::Tensor sum = at::mul(grad_hidden, x).sum(0, /*keepdim=*/true);
      add ? grad_scale.add_(sum) : grad_scale.copy_(sum);
    };
  }
};

std::unique_ptr<model::Node> MakeScaleNode(const model::NodeContext& context) {
  return std::make_unique<ScaleNode>(context);
}

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
