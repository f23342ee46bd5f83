// SPDX-License-Identifier: Apache-2.0
// Units of which a part stays in the main type while the others are bf16.
#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/bound_arrays.h"
#include "model/declared_node.h"
#include "model/node_kinds.h"
#include "model/unit_parameters.h"
#include "ops/tensors.h"
#include "plan/build_stage.h"
#include "plan/layout_text.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

using testing::HasSubstr;

constexpr char kBf16[] = "compute: COMPUTE_TYPE_BF16";
constexpr char kFp32Transport[] = "compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_FP32";

// hidden = x ⊙ scale + the sum of the rows of bias: scale [H] is in what the node computes in, bias [rows, H]
// in the main type.
template <int64_t rows>
model::NodeDeclaration DeclareAffine(const model::DecoderShapes& s) {
  return {.place = schedules::Place::kAfter,
          .inputs = {model::HiddenState("x", s)},
          .outputs = {{.tensor = model::HiddenState("hidden", s).tensor, .gradient = true}},
          .parts = {{.name = "bias",
                     .parameters = {{.name = "bias", .shape = {rows, s.hidden}}},
                     .main_type = true},
                    {.name = "scale", .parameters = {model::NormOver(s, "scale", s.hidden)}}},
          .forward = {.reads = {"x"}, .parameters = true},
          .backward_input = {.reads = {"x"},
                             .gradient_reads = {"hidden"},
                             .gradient_writes = {"x"},
                             .parameters = true,
                             .parameter_gradients = true},
          .recomputes = true};
}

constexpr model::ParameterName kNames[] = {{"scale", "affine.scale"}, {"bias", "affine.bias"}};
// Of one granule in the main type, and of three.
constexpr model::NodeKind kOne = {.name = "affine", .declare = DeclareAffine<1>, .names = kNames};
constexpr model::NodeKind kOdd = {.name = "affine", .declare = DeclareAffine<5>, .names = kNames};

class AffineNode final : public model::DeclaredNode {
 public:
  using DeclaredNode::DeclaredNode;

 private:
  static void Put(const at::Tensor& sum, bool add, const at::Tensor& gradient) {
    add ? gradient.add_(sum) : gradient.copy_(sum);
  }

  model::BoundPass BindForward(model::BoundArrays& in) const override {
    const ops::Array scale = in.Parameter("scale").Reshaped(1, s_.hidden);
    EXPECT_EQ(in.Parameter("bias").type, model::ElementKindOf(types_.unit.main));
    return [x = ops::TensorOf(in.Value("x")), hidden = ops::TensorOf(in.Value("hidden")),
            scale = ops::TensorOf(scale), bias = ops::TensorOf(in.Parameter("bias"))]() mutable {
      hidden.copy_(at::mul(x, scale).add(bias.sum(0, /*keepdim=*/true)));
    };
  }

  model::BoundPass BindBackward(model::BoundArrays& in) const override {
    const ops::Array scale = in.Parameter("scale").Reshaped(1, s_.hidden);
    const ops::Array grad_scale = in.ParameterGradient("scale").Reshaped(1, s_.hidden);
    const ops::Array bias = in.ParameterGradient("bias");
    const at::Tensor grad_bias = bias.defined() ? ops::TensorOf(bias) : at::Tensor();
    const bool add_bias = in.AddsToParameterGradient("bias");
    EXPECT_EQ(in.Parameter("bias").type, model::ElementKindOf(types_.unit.main));
    return [x = ops::TensorOf(in.Value("x")), grad_hidden = ops::TensorOf(in.Gradient("hidden")),
            grad_x = ops::TensorOf(in.OverwrittenGradient("x")), scale = ops::TensorOf(scale),
            grad_scale = ops::TensorOf(grad_scale), grad_bias, add_bias,
            add_scale = in.AddsToParameterGradient("scale")]() mutable {
      at::mul_out(grad_x, grad_hidden, scale);
      const at::Tensor wide = grad_hidden.to(at::kDouble);
      Put(at::mul(wide, x).sum(0, /*keepdim=*/true), add_scale, grad_scale);
      if (grad_bias.defined()) {  // not of a frozen unit
        EXPECT_NE(grad_bias.scalar_type(), at::kBFloat16);
        Put(wide.sum(0, /*keepdim=*/true).expand_as(grad_bias), add_bias, grad_bias);
      }
    };
  }
};

std::unique_ptr<model::Node> MakeNode(const model::NodeContext& context) {
  return std::make_unique<AffineNode>(context);
}

plan::JobPlan JobOf(const model::NodeKind& kind, const JobOptions& options) {
  plan::JobPlan plan = MakeJob(options);
  plan.model.layers.assign(options.layers, {&model::kAttention, &model::kMlp, &kind});
  plan.units = model::DecoderUnits(plan.model);
  plan.layouts = plan::WholeLayouts(plan);
  plan::BuildOutline(plan);
  plan::BuildPrograms(plan);
  return plan;
}

// Memory is NaN at first, unless canaries are in its gaps.
JobRun RunMixed(const plan::JobPlan& plan) {
  return RunJob(plan,
                {.fill_with_nan = !plan.train.canaries, .make_nodes = [&plan](const ops::Operations& ops) {
                   return model::DecoderNodes(plan.model, plan.batch, plan.precision, ops,
                                              {{&kOne, MakeNode}, {&kOdd, MakeNode}});
                 }});
}

// The job with so many microbatches a step, shared among the ranks.
JobOptions On(const std::string& strategy, int ranks, int microbatches, const std::string& precision) {
  return {.strategy = strategy,
          .ranks = ranks,
          .replicas = ranks > 1 ? ReplicasOf(strategy) : 1,
          .microbatches_per_rank = microbatches / ranks,
          .precision = precision};
}

TEST(MixedTypesTest, AUnitHasAClassForEachType) {
  const plan::JobPlan plan = JobOf(kOdd, On("zero3", 2, 2, kBf16));
  const schedules::Unit& unit = plan.outline.units.at(1);
  ASSERT_EQ(unit.name, "layers.0");
  ASSERT_EQ(unit.classes.size(), 2U);
  EXPECT_EQ(unit.classes[0].precision, (schedules::UnitPrecision{.main = 4, .compute = 2, .transport = 2}));
  EXPECT_EQ(unit.classes[1].precision, (schedules::UnitPrecision{.main = 4, .compute = 4, .transport = 4}));
  EXPECT_EQ(unit.classes[1].elements, 3 * 64);
  EXPECT_EQ(unit.parts.back().name, "bias") << "behind the scale";
  EXPECT_EQ(unit.parts.back().of_class, 1);
  const std::string text = plan::LayoutText(plan);
  EXPECT_THAT(text, HasSubstr("  layers.0: parameters of 2 types, which follow each other in each buffer\n"));
  EXPECT_THAT(text, HasSubstr("    in fp32: 160 elements, padding 96 (60 %), shards cut at multiples of 64\n"
                              "    model.layers.0.affine.bias [5, 32] @0+160\n"));
  EXPECT_EQ(JobOf(kOdd, On("zero3", 2, 2, "")).outline.units.at(1).classes.size(), 1U) << "all fp32";
}

TEST(MixedTypesTest, AnyNumberOfRanksGivesTheSameBits) {
  for (const model::NodeKind* kind : {&kOne, &kOdd}) {
    for (const char* precision : {kBf16, kFp32Transport}) {
      const JobRun one = RunMixed(JobOf(*kind, On("zero3", 1, 12, precision)));
      EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
      EXPECT_TRUE(one.arrays.contains("layers.0/class 1/weights"));
      for (const char* strategy : {"zero2", "zero3"}) {
        for (const int ranks : {2, 3, 4}) {
          SCOPED_TRACE(testing::Message() << strategy << ", " << ranks << " ranks, " << precision);
          ExpectSameBits(one, RunMixed(JobOf(*kind, On(strategy, ranks, 12, precision))));
        }
      }
    }
  }
}

// These add up a rank's microbatches before they are exchanged.
TEST(MixedTypesTest, ReducingOnceGivesTheBitsOfOneMicrobatch) {
  for (const int ranks : {2, 3}) {
    const JobRun one = RunMixed(JobOf(kOdd, On("zero3", 1, ranks, kBf16)));
    for (const char* strategy : {"replicate", "zero1"}) {
      SCOPED_TRACE(testing::Message() << strategy << ", " << ranks << " ranks");
      ExpectSameBits(one, RunMixed(JobOf(kOdd, On(strategy, ranks, ranks, kBf16))));
    }
  }
}

// Replicas of two ranks and of one add in the same order, whichever rank updates.
TEST(MixedTypesTest, StrategiesWithReplicasGiveTheSameBits) {
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const JobRun hsdp = RunMixed(JobOf(kOdd, On("hsdp", ranks, 4, kBf16)));
    EXPECT_LT(hsdp.steps.back().loss(), hsdp.steps.front().loss());
    EXPECT_EQ(hsdp.unequal_replicas, std::set<std::string>());
    ExpectSameBits(hsdp, RunMixed(JobOf(kOdd, On("hfsdp", ranks, 4, kBf16))));
  }
}

TEST(MixedTypesTest, SchedulesAndRecomputationChangeNoBit) {
  JobOptions options = On("zero3", 2, 4, kBf16);
  const JobRun sequential = RunMixed(JobOf(kOdd, options));
  options.overlap = true;
  options.recompute = "layer";
  ExpectSameBits(sequential, RunMixed(JobOf(kOdd, options)));
}

TEST(MixedTypesTest, NothingWritesToTheGapsOfEitherClass) {
  JobOptions options = On("zero3", 3, 3, kBf16);
  options.canaries = true;
  ExpectSameBits(RunMixed(JobOf(kOdd, On("zero3", 3, 3, kBf16))), RunMixed(JobOf(kOdd, options)));
}

// A checkpoint says nothing of classes: its arrays are the parameters.
TEST(MixedTypesTest, ACheckpointResumesBitwiseOnOtherRanks) {
  const TemporaryFolder folder;
  JobOptions options = On("zero3", 3, 12, kBf16);
  options.steps = 4;
  options.checkpoint_directory = folder.path();
  options.checkpoint_every_steps = 2;
  const JobRun whole = RunMixed(JobOf(kOdd, options));
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    const TemporaryFolder other;
    JobOptions resumed = On("zero2", ranks, 12, kBf16);
    resumed.steps = 4;
    resumed.checkpoint_directory = other.path();
    resumed.resume = folder.path() + "/step-2";
    const JobRun run = RunMixed(JobOf(kOdd, resumed));
    EXPECT_EQ(run.resumed_step, 2);
    ExpectSameBits(Tail(whole, 3), run);
  }
}

TEST(MixedTypesTest, AFrozenUnitKeepsItsClassesComputeTypes) {
  JobOptions options = On("zero3", 2, 2, kBf16);
  options.frozen = "layers.0";
  const JobRun run = RunMixed(JobOf(kOdd, options));
  EXPECT_LT(run.steps.back().loss(), run.steps.front().loss());
  options.ranks = 1;
  options.microbatches_per_rank = 2;
  ExpectSameBits(run, RunMixed(JobOf(kOdd, options)));
}

}  // namespace
}  // namespace tandem::parity
